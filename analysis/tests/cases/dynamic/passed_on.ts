helper(mcp);
helper(mcp.fs);
helper(mcp.fs.read);
