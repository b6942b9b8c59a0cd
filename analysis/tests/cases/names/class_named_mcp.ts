class mcp { static a = { b() {} }; }
mcp.a.b({});
