class A {
  async #read(path) { return await mcp.fs.read({ path }); }
  run() { return this.#read("x"); }
}
return await new A().run();
