await mcp.a.b({ whole: args, part: args.list[0].name, key: args["some key"], n: args.n + 1 });
const { user: { id } } = args;
await mcp.a.c({ id });
