args.path = "other";
await mcp.fs.read({ path: args.path });
