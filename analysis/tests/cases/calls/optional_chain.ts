await mcp?.fs?.read?.({ path: "a" });
