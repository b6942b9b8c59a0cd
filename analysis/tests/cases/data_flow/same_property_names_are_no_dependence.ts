const a = await mcp.a.one({ path: "x" });
await mcp.a.two({ path: "x" });
