switch (await mcp.a.kind({})) {
  case await mcp.a.first({}):
    await mcp.a.one({});
    break;
  default:
    await mcp.a.other({});
}
