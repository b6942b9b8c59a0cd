async function f(x = mcp.a.fallback({})) {
  return x;
}
await f();
