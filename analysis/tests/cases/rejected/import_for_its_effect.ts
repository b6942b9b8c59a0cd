import "https://example.com/x.js";
await mcp.a.b({});
