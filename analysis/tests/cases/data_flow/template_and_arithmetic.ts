const a = await mcp.a.one({});
const b = await mcp.a.two({});
await mcp.b.use({ s: `${a.x}-${b}`, n: a.n * 2 + b.n, t: typeof a });
