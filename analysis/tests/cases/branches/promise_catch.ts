const a = await mcp.a.one({}).catch(() => mcp.a.two({}));
await mcp.a.use({ a });
