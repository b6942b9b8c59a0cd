switch ((await mcp.x.kind({})).name) {
  case "a": await mcp.x.a({}); break;
  default: await mcp.x.other({});
}
await mcp.x.after({});
