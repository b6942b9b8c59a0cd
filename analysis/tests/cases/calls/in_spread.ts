const all = [...(await mcp.a.list({}))];
const one = { ...(await mcp.a.object({})) };
Math.max(...(await mcp.a.numbers({})));
