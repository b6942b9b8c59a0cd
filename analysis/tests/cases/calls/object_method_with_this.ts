const api = {
  fs: mcp.fs,
  load(path: string) {
    return this.fs.read({ path });
  },
};
await api.load("a");
