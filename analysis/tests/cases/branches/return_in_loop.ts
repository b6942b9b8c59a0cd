for (const x of await mcp.a.list({})) {
  if (await mcp.a.test({ x })) return x;
}
await mcp.a.none({});
