const twice = async (tool: any) => [await tool({ n: 1 }), await tool({ n: 2 })];
await twice(mcp.a.b);
