const a = await mcp.a.one({});
const b = a as unknown as string;
const c = b!;
await mcp.b.use({ c });
