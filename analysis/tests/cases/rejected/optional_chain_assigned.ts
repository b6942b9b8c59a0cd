const row = await mcp.a.b({});
row?.name = "x";
