const f = (path) => { let path = "x"; return mcp.a.b({ path }); };
