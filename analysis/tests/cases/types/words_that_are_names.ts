let type = "x", of = 1, as = 2;
const declare = await mcp.a.b({ type, of });
return await mcp.a.c({ declare, as });
