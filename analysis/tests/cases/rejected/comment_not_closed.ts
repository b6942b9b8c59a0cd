await mcp.a.b({}); /* and then
await mcp.a.c({});
