const list = await mcp.a.list({});
const all = await Promise.all(list.map(async (item: any) => (await mcp.a.get({ id: item.id })).value));
return await mcp.a.join({ all });
