const text = await mcp.a.b({});
const text = await mcp.a.c({});
