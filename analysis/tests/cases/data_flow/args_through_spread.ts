const all = { mode: "fast", ...args };
await mcp.a.use({ ...args });
await mcp.a.use({ a: 1, ...args.more, b: 2 });
await mcp.a.use({ list: [...args.list, "end"] });
await mcp.a.use({ all });
const one = { x: args.x, y: 1 };
const { x, ...others } = one;
await mcp.a.use({ ...others });
await mcp.a.use({ ...one });
