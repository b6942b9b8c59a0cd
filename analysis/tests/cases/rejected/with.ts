with (mcp) fs.read();
