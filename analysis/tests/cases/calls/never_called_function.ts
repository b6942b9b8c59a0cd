function unused() {
  return mcp.a.hidden({});
}
