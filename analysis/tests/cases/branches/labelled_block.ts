out: {
  if (args.skip) break out;
  await mcp.x.a({});
}
await mcp.x.b({});
