function f(mcp: any) {
  return mcp.not.ours();
}
{
  const mcp = { a: { b() {} } };
  mcp.a.b();
}
try {} catch (mcp) { mcp.not.ours(); }
for (const mcp of []) mcp.not.ours();
class X { mcp = 1; }
f({ not: { ours() {} } });
await mcp.a.ours({});
