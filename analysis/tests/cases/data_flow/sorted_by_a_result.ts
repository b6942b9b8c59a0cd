const r = await mcp.a.one({});
const names = ["b", "a"];
names.sort((one, other) => r.order[one] - r.order[other]);
await mcp.a.use({ names });
