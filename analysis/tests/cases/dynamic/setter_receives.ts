const o = { set x(v) { v.read({}); } };
o.x = mcp.fs;
