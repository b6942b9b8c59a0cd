class A {
  one = mcp.a.field({});
  static two = mcp.a.fixed({});
  #three = mcp.a.hidden({});
}
new A();
