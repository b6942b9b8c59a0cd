for (const x of args.list) {
  if (x.a) await mcp.a.one({ x });
  else await mcp.a.two({ x });
}
await mcp.a.after({});
