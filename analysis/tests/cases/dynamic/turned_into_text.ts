const s = `${mcp.fs}` + mcp.a;
