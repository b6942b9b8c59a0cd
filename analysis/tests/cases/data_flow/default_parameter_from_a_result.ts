const base = await mcp.x.base({});
const f = (path = base.path) => mcp.fs.read({ path });
await f();
