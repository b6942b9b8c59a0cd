// `args` orders nothing: the calls stay independent.
const a = await mcp.a.one({ x: args.x + 1 });
const b = await mcp.a.two({ x: args.x + 1 });
await mcp.a.use({ sum: a.n + b.n + args.n, a: a.n });
await mcp.a.use({ part: a[args.key], item: args.list[b.index] });
