const s = `a ${await mcp.a.one({})} b ${await mcp.a.two({})}`;
