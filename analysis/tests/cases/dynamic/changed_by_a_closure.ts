let name = "read";
const change = () => { name = args.name; };
change();
await mcp.fs[name]({});
