// Whoever holds the list holds what is added to it later.
const r = await mcp.a.one({});
const items = [];
const report = { title: "x", items };
items.push(r.item);
await mcp.a.use({ report });
const row = { n: 1 };
const rows = [];
rows.push(row);
row.n = r.n;
await mcp.a.use({ rows });
await mcp.a.use({ alone: [{ n: 1 }] });
