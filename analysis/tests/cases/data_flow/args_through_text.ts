// Sums, templates and casts of `args` are made from it.
const path = "notes/" + args.name;
const text = `# ${args.title as string}`;
const size = Number(args.size) * 2;
await mcp.a.use({ path, text, size, flag: !args.off, same: args.name as string });
await mcp.a.use({ plain: "notes/" + "x", n: 1 + 2 });
