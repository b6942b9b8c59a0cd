await mcp.a.b({ text: "one });
await mcp.a.c({});
