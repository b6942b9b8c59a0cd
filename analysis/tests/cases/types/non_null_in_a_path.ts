const found = await mcp.a.find({});
await mcp.b.use({ id: found!.items![0]!.id });
