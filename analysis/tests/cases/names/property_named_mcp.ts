const o = { mcp: { a: { b() {} } } };
o.mcp.a.b();
this_is.mcp.a.b();
