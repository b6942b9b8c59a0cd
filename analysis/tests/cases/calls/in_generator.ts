function* g() {
  yield mcp.a.one({});
  yield* [mcp.a.two({})];
}
for (const x of g()) await x;
