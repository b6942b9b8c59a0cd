class A { static { mcp.a.b({}); } }
