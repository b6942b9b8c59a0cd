let total = 0;
total += await mcp.a.add({});
total ??= await mcp.a.missing({});
total ||= await mcp.a.falsy({});
total &&= await mcp.a.truthy({});
