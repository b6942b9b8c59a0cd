let t = mcp.a.one;
if (args.x) t = mcp.a.two;
await t({});
