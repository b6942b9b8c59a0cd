const { read, ...others } = mcp.fs;
