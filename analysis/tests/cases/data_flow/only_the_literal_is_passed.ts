const ignored = await mcp.x.a({});
await mcp.x.b({ path: "fixed" });
return ignored;
