await using file = await mcp.fs.open({ path: "x" });
