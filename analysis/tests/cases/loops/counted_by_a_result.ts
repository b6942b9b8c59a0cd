const list = await mcp.x.list({});
for (let i = 0; i < list.length; i++) await mcp.x.use({ id: list[i].id });
