const rows = await mcp.a.rows({});
const list = await mcp.a.list({});
list.forEach((x) => {
  if (!rows[x]) throw new Error(x);
});
await mcp.a.end({});
const all = await Promise.all(
  list.map(async (x) => {
    const y = await mcp.a.get({ x });
    if (!y.ok) throw new Error(x);
  }),
);
await mcp.a.last({});
