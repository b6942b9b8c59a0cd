const x = (await mcp.a.test({})) ? await mcp.a.yes({}) : await mcp.a.no({});
