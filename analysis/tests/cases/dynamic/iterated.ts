for (const x of mcp.fs) x({});
for (const k in mcp) k;
const [a] = mcp.list;
