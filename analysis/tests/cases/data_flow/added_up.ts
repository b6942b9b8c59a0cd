let total = 0;
total += (await mcp.x.a({})).n;
total += (await mcp.x.b({})).n;
await mcp.x.report({ total });
