} mcp.a.b(); {
