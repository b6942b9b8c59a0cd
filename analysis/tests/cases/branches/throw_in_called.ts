// What follows a call that may throw waits for what decides it.
function check(r) {
  if (!r.ok) throw new Error("no");
}
class Row {
  must(r) {
    if (!r.there) throw new Error("none");
  }
}
const a = await mcp.a.one({});
check(a);
await mcp.a.two({});
const b = await mcp.a.three({});
new Row().must(b);
await mcp.a.four({});
