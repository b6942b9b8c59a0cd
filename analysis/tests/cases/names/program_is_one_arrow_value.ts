async () => mcp.a.b({ n: 1 })
