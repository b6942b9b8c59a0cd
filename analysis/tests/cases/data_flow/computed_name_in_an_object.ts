// The name is part of the object, so whoever has the object has it.
const key = await mcp.a.key({});
const o = { [key]: 1 };
await mcp.a.use({ o });
await mcp.a.use({ names: Object.keys(o) });
await mcp.a.use({ one: o.one });
await mcp.a.use({ filter: { [key.name]: true, limit: 3 } });
await mcp.a.use({ [key.name]: true, limit: 3 });
await mcp.a.use({ calls: { [`${key}_text`]() {}, get [key.other]() { return 1; } } });
