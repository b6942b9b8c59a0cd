const options = { path: "a" };
const same = options;
same.path = args.path;
await mcp.fs.read(options);
