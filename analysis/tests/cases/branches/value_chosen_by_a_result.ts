const a = await mcp.a.one({});
let mode = "slow";
if (a.quick) mode = "fast";
await mcp.a.use({ mode });
