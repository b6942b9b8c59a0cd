let cached = args.cached;
cached ??= await mcp.x.load({});
await mcp.x.use({ cached });
