let a = await mcp.x.a({}), b = await mcp.x.b({});
[a, b] = [b, a];
await mcp.x.use({ a });
