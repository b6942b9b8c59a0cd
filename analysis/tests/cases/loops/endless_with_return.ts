async function find(after) {
  for (;;) {
    const r = await mcp.a.page({});
    if (r.at <= after) return r;
  }
}
const first = await mcp.a.first({});
const r = await find(first.at);
await mcp.a.end({ id: r.id });
