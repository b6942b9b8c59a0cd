eval("mcp.a.b()");
