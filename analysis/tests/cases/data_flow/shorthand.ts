const a = await mcp.a.one({});
await mcp.b.use({ a });
