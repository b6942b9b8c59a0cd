const texts = await Promise.all(args.paths.map(async (path) => await mcp.fs.read({ path })));
args.urls.forEach(mcp.web.get);
await mcp.a.first({}).then(mcp.a.second);
