const copy = JSON.parse(JSON.stringify(args));
await mcp.a.use({ copy });
const text = JSON.stringify({ name: args.name, n: 1 });
await mcp.a.use({ text });
await mcp.a.use({ text: JSON.stringify({ n: 1 }) });
const same = structuredClone(args.list);
await mcp.a.use({ same });
