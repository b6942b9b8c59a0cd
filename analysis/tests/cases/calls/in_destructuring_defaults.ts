const { a = await mcp.x.a({}), b: [c = await mcp.x.c({})] = [] } = args;
