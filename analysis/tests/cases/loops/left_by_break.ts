for (const path of args.paths) {
  if (await mcp.fs.exists({ path })) { await mcp.fs.read({ path }); break; }
}
await mcp.x.after({});
