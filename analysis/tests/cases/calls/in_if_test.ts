if (await mcp.fs.exists({ path: "a" })) return 1;
