function f() {
  mcp.a.b();
  var mcp;
}
f();
