mcp = { fs: 1 };
mcp.fs.read = () => 1;
delete mcp.fs;
