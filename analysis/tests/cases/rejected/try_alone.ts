try { await mcp.a.b({}); }
return 1;
