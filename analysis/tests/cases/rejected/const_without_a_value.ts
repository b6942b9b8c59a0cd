const text;
text = await mcp.a.b({});
