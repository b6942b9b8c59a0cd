const options = { ...args.options, depth: 2 };
const list = await mcp.filesystem.list_directory(args);
await mcp.filesystem.search_files({ ...options, path: list[0].name, pattern: args["odd name"][2] });
await mcp.tavily.search({ query: [args.a, "b", list.length], deep: { nested: { arg: args.b.c } } });
