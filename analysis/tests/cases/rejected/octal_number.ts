return await mcp.fs.chmod({ mode: 0755 });
