throw new Error(await mcp.a.b({}));
