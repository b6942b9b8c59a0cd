// What is in `rest` may be `a`, so `a` is not known.
const r = await mcp.a.one({});
const rest = { ...r, b: 2 };
await mcp.a.use({ a: 1, ...rest });
await mcp.a.use({ ...rest, a: 1 });
