mcp.a.b.bind(null, { n: 1 })({});
