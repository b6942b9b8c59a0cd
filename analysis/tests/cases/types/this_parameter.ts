function go(this: { path: string }) { return mcp.fs.read({ path: this.path }); }
return await go.call({ path: "x" });
