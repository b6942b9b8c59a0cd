await mcp.a.b("text");
await mcp.a.b();
await mcp.a.b([1, 2], "ignored");
