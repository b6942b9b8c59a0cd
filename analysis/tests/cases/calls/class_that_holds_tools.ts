class Notes {
  private readonly fs = mcp.filesystem;
  #json = mcp.json;
  constructor(web) {
    this.web = web;
  }
  async load(url) {
    const page = await this.web.get({ url });
    const data = await this.#json.parse({ data: page });
    await this.fs.write_file({ content: data });
  }
}
await new Notes(mcp.web).load(args.url);
