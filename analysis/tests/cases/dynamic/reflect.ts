Reflect.get(mcp, "fs").read({});
Reflect.apply(mcp.a.b, null, [{}]);
