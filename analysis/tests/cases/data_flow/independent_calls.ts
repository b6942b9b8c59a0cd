const a = await mcp.a.one({});
const b = await mcp.a.two({});
const c = await mcp.a.three({});
return { a, b, c };
