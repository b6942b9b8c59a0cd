do { } while (await mcp.a.busy({}));
