const key = await mcp.a.key({});
const all = await mcp.a.all({});
const { [key]: one, ...others } = all;
await mcp.a.use({ one });
await mcp.a.use({ others });
const table = { a: 1, b: 2 };
const { [key.name]: part } = table;
await mcp.a.use({ part });
await mcp.a.use({ a: table.a });
