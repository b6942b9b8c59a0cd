await mcp[args.ns].read({});
