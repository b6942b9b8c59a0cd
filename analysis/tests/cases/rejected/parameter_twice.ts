function f(a, a) { return mcp.a.b({ a }); }
