const found = await mcp.x.list({});
return await Promise.all(found.filter((x) => x.ok).map((x) => mcp.x.get({ id: x.id })));
