const o = { [await mcp.a.key({})]: 1, [`${await mcp.a.other({})}`]() {} };
class A { static [await mcp.a.name({})] = 1; }
