const text = await mcp.shop.search({ query: args.query, limit: args.limit });
if (text) await mcp.shop.buy({ id: args.id });
return text;
