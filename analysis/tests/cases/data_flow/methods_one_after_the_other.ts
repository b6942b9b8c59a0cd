class Query {
  parts: string[] = [];
  where(text: string) {
    this.parts.push(text);
    return this;
  }
  build() {
    return this.parts.join(" and ");
  }
}
const r = await mcp.a.one({});
await mcp.a.use({ query: new Query().where(r.name).build() });
await mcp.a.use({ query: new Query().where("x").build() });
