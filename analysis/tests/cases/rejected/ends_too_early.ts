if (args.x) {
  await mcp.a.b({});
