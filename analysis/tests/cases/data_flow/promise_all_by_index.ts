const [a, b] = await Promise.all([mcp.a.one({}), mcp.a.two({})]);
await mcp.b.use({ a });
await mcp.b.use({ b: b.items[1] });
