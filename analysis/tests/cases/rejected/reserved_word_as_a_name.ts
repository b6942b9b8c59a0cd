let static = await mcp.a.b({});
