function add(list, x) {
  list.push(x);
}
const a = [];
const b = [];
const r = await mcp.a.one({});
const s = await mcp.a.two({});
add(a, r.x);
add(b, s.x);
await mcp.a.use({ a });
await mcp.a.use({ b });
