const o = {
  fs: mcp.fs,
  get text() {
    return this.fs.read({});
  },
};
await o.text;
