class Store {
  async load(key: string) {
    return await mcp.kv.get({ key });
  }
}
const store = new Store();
return mcp.a.b({ v: await store.load("k") });
