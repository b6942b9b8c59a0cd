const a = await mcp.a.one({});
if (a.x) await mcp.b.x({});
else if (await mcp.b.test({})) await mcp.b.y({});
else await mcp.b.z({});
