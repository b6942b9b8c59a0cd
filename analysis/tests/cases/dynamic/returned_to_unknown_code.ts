const spaces = args.list.map(() => mcp.fs);
