["a", "b"].forEach(async (path) => { await mcp.fs.read({ path }); });
