await (async () => await mcp.a.b({ n: 1 }))();
new mcp.a.c({ n: 2 });
