mcp({});
mcp.fs({});
mcp.fs.read.more({});
