const options = { path: "a", list: [1, 2] };
await mcp.fs.read(options);
await mcp.fs.read({ path: options.path });
