for (const x of args.list) {
  if (x.ok) {
    await mcp.a.inside({ x });
  }
}
await mcp.a.outside({});
