class Stock {
  path = "stock.json";
  async load() { return JSON.parse(await mcp.filesystem.read_text_file({ path: this.path })); }
  get text() { return mcp.filesystem.read_text_file({ path: this.path }); }
  async low() { const stock = this.load(); return Object.keys(stock); }
  async lines() { return this.text.split("\n"); }
  async right() { return [await this.load(), (await this.text).length]; }
}
return [await new Stock().low(), await new Stock().lines(), await new Stock().right()];
