const tools = [mcp.fs.read, mcp.db.query, mcp.web.get].filter((tool, at) => at !== args.skip);
const answers = await Promise.all(tools.map((tool) => tool({ q: args.q })));
return answers;
