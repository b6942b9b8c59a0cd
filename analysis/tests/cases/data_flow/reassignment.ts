let a = await mcp.a.one({});
a = await mcp.a.two({});
await mcp.b.use({ a });
