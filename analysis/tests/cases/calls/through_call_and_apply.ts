await mcp.a.b.call(null, { x: 1 });
await mcp.a.c.apply(null, [{ x: 2 }]);
const bound = mcp.a.d.bind(null);
await bound({ x: 3 });
