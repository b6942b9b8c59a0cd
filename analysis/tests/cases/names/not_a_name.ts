await mcp.a["b c"]({});
await mcp.a["ä"]({});
await mcp.a__b.c({});
