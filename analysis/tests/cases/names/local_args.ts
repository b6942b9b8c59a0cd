{
  const args = { path: "b" };
  await mcp.fs.read({ path: args.path });
}
await mcp.fs.read({ path: args.path });
