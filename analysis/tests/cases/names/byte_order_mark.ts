await mcp.a.b({});
