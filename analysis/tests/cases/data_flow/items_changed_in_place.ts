const r = await mcp.a.one({});
const groups = new Map();
for (const group of groups.values()) group.n = r.n;
await mcp.a.use({ groups });
const rows = [{ n: 1 }, { n: 2 }];
rows.forEach((row) => {
  row.n = r.m;
});
await mcp.a.use({ rows });
