class Files {
  list({ path: { from } }: { path: { from: string } });
  #first = mcp.fs.read({ path: "x" });
  first() { return this.#first; }
}
return await new Files().first();
