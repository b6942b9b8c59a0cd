const seen = new Map();
seen.set("k", await mcp.a.one({}));
await mcp.b.use({ v: seen.get("k") });
