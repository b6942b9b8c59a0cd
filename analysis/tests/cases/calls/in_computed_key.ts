const o = { [await mcp.a.key({})]: 1, [`${await mcp.a.other({})}`]: 2 };
