for await (const text of [mcp.x.a({}), mcp.x.b({})]) await mcp.x.use({ text });
