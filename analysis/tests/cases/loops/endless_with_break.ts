// How often the body runs is decided by what ends it.
const limit = await mcp.a.limit({});
let page = 0;
while (true) {
  const r = await mcp.a.page({ path: "x" });
  await mcp.a.note({});
  if (r.at > limit) break;
  page += 1;
}
await mcp.a.end({ page });
