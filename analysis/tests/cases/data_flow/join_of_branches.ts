let a = await mcp.a.one({});
if (args.x) a = await mcp.a.two({});
await mcp.b.use({ a });
