class Counter {
  counts = new Map();
  add(key) {
    this.counts.set(key, 1);
    return this;
  }
  top() {
    return [...this.counts].sort(([, a], [, b]) => b - a);
  }
}
const one = new Counter();
const two = new Counter();
const r = await mcp.a.one({});
const s = await mcp.a.two({});
one.add(r.x);
two.add(s.x).add(1);
await mcp.a.use({ one: one.top() });
await mcp.a.use({ two: two.top() });
