const v = await mcp.a.one({}).then((v) => mcp.a.two({ v }));
await mcp.a.end({ v });
