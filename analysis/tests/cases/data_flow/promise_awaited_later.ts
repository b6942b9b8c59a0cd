const p = mcp.a.one({});
const q = mcp.a.two({});
const x = await p;
await mcp.b.use({ x });
await mcp.b.use({ y: (await q).id });
