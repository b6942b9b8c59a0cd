export = mcp.a;
