const list = await mcp.a.list({});
for (const item of list.items) await mcp.a.do({ id: item.id });
