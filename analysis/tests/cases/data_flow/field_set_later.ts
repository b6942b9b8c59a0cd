const o: any = { a: 1 };
o.b = await mcp.a.one({});
await mcp.b.use(o);
