class A {
  run() { return this.take(mcp.fs); }
  take(x) { return x; }
}
class B extends A {
  take(x) { return x.read({}); }
}
new B().run();
