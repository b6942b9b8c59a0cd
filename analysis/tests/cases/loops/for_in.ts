const map = await mcp.a.map({});
for (const key in map) await mcp.a.do({ key, value: map[key] });
