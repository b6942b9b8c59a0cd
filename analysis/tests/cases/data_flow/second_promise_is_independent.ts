const a = mcp.x.a({});
const b = mcp.x.b({});
await mcp.x.use({ a: await a, b: await b });
