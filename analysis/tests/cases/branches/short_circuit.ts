const a = await mcp.a.one({});
a.ok && (await mcp.a.two({}));
a.ok || (await mcp.a.three({}));
const b = a.value ?? (await mcp.a.four({}));
await mcp.a.use({ b });
