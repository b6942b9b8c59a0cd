const { id, ...rest } = await mcp.x.get({});
await mcp.x.put({ id });
await mcp.x.log({ rest });
