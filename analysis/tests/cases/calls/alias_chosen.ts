const t = args.fast ? mcp.a.quick : mcp.a.slow;
await t({ n: 1 });
