const a = await mcp.a.one({});
if (a.ok) await mcp.a.two({});
else await mcp.a.three({});
await mcp.a.four({});
