const found = await mcp.x.find({});
await mcp.x.use({ city: found?.address?.city });
