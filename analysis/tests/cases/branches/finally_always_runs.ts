try { await mcp.x.risky({}); } finally { await mcp.x.clean({}); }
await mcp.x.after({});
