await mcp.a.b?.({ x: 1 });
await mcp?.a?.c({ x: 2 });
