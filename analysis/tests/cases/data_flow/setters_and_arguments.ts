const r = await mcp.a.one({});
let kept;
const box = {
  set value(given) {
    kept = given;
  },
};
box.value = r.x;
await mcp.a.use({ kept });
function first() {
  return arguments[0];
}
await mcp.a.use({ x: first(r.x) });
