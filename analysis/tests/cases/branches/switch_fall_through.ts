let v = 1;
switch (args.kind) {
  case "a":
    v = await mcp.a.one({});
  case "b":
    await mcp.a.use({ v });
    break;
  default:
    return;
}
await mcp.a.after({ v });
