const yes = [];
const no = [];
const r = await mcp.a.one({});
const s = await mcp.a.two({});
(r.ok ? yes : no).push(1);
await mcp.a.use({ no });
const also = yes;
also.push(s.x);
await mcp.a.use({ yes });
