console.log(await mcp.a.one({}), new Date(await mcp.a.two({})));
const cache: any = {};
delete cache[await mcp.a.three({})];
void (await mcp.a.four({}));
