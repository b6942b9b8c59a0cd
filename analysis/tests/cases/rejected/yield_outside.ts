yield await mcp.a.b({});
