const [a] = await Promise.allSettled([mcp.a.one({}), mcp.a.two({})]);
const r = await Promise.race([mcp.a.three({}), mcp.a.four({})]);
await mcp.b.use({ a: a.value });
await mcp.b.use({ r });
