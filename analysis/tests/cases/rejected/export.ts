export const a = await mcp.a.b({});
