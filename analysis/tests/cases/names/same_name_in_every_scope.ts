const x = await mcp.a.one({});
{ const x = await mcp.a.two({}); await mcp.a.use({ x }); }
for (const x of args.list) await mcp.a.use({ x });
await mcp.a.last({ x });
