const a = await mcp.a.one({});
await mcp.b.use({ fixed: 1, ...a });
await mcp.b.use(...a.list);
