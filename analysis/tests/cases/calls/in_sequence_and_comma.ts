const x = (await mcp.a.one({}), await mcp.a.two({}));
await (0, mcp.a.three)({});
