const x = await mcp.a.one({}).then((r: any) => r.items);
await mcp.b.use({ x: x[0] });
