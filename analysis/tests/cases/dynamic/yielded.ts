function* g() {
  yield mcp.fs;
}
g().next().value.read({});
