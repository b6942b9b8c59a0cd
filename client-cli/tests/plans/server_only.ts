const found = await mcp.tavily.search({ query: args.topic, max_results: 3 });
return await mcp.json.stringify({ value: found.results, indent: 2 });
