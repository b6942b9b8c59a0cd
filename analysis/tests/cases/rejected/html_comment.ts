const a = 1;
<!-- mcp.a.b({})
return a;
