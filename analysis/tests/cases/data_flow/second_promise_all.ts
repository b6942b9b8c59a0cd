const r = await Promise.all([mcp.a.one({}), mcp.a.two({})]);
const s = await Promise.all([mcp.b.one({ x: r[0] }), mcp.b.two({})]);
await mcp.c.use({ s: s[1] });
