while (await mcp.a.more({})) await mcp.a.step({});
for (let i = await mcp.a.start({}); i < (await mcp.a.limit({})); i += await mcp.a.width({})) {}
do {} while (await mcp.a.again({}));
