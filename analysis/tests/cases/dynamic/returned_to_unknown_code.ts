const spaces = Array.from(args.list, () => mcp.fs);
