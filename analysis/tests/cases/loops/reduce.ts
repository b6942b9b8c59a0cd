const sum = await args.list.reduce(async (acc: any, x: any) => mcp.math.add({ a: await acc, b: x }), 0);
await mcp.a.use({ sum });
