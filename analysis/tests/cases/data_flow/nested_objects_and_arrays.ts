const a = await mcp.a.one({});
const b = await mcp.a.two({});
await mcp.b.use({ deep: { list: [a.x, { y: b.y }], fixed: [1, { z: true }] } });
