const x = await mcp.a.b({;
