const a = await mcp.a.outer({});
{
  const a = await mcp.a.inner({});
  await mcp.b.use({ a });
}
await mcp.b.use({ a });
