function pick(x: boolean) {
  return x ? mcp.a.one : mcp.a.two;
}
await pick(true)({});
