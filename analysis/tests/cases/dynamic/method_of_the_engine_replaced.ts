Array.prototype.map = function (f) { return f("other"); };
["a"].map((name) => mcp.x[name]({}));
