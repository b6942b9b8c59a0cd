const f = function () { return arguments.length; };
return await mcp.a.b({ n: f(1, 2) });
