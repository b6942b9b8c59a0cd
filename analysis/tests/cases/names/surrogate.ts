await mcp.a["\uD800"]({});
