class A { constructor(path) { this.text = mcp.fs.read({ path }); } }
new A("x");
