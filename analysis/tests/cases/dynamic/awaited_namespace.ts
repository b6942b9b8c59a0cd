await mcp.fs;
