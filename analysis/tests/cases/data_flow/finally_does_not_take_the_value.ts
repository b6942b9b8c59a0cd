const text = await mcp.fs.read({ path: "x" }).finally(() => mcp.x.done({}));
await mcp.x.use({ text });
