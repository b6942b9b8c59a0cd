const { user: { name, ...rest }, list: [first, ...more], size = 3 } = args;
await mcp.a.use({ name, rest, first, more, size });
let second;
[, second] = args.list;
await mcp.a.use({ second });
const { path } = { path: args.path, other: 1 };
await mcp.a.use({ path });
