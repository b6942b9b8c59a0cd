return /a/gg.test(await mcp.a.b({}));
