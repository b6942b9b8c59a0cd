await mcp.fs[args.action]({});
