class Caller {
  run() {
    return mcp.fs[this.name]({});
  }
}
new Caller().run();
