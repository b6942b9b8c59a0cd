await mcp.filesystem.read_file({ path: "a.txt" });
