return await mcp.shop.search({ query: args.query }).catch(() => null);
