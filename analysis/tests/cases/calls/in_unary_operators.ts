void (await mcp.a.one({}));
const t = typeof (await mcp.a.two({}));
const n = -(await mcp.a.three({}));
