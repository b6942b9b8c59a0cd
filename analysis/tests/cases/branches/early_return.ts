const a = await mcp.a.one({});
if (!a) return null;
await mcp.a.two({});
