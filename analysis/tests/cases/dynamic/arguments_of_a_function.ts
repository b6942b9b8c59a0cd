function f() {
  return arguments[0].read({});
}
f(mcp.fs);
