const tools = { read: mcp.fs.read, fs: mcp.fs };
await tools.read({});
await tools.fs.write({});
const { read } = tools;
await read({});
