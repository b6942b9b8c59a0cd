return mcp.fs;
