const a = await mcp.x.a({});
await mcp.x.use({ value: a ?? "none" });
