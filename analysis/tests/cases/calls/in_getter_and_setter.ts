const o = {
  get a() {
    return mcp.a.got({});
  },
  set a(v) {
    mcp.a.set({ v });
  },
};
