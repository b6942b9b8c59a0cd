const first = <T,>(list: T[]): T => list[0];
const all = await mcp.a.list({});
return await mcp.a.get({ id: first(all) });
