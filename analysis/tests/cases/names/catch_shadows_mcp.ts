try { await mcp.a.b({}); } catch (mcp) { mcp.a.c({}); }
