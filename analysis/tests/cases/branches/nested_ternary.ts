const kind = await mcp.x.kind({});
return kind === "a" ? await mcp.x.a({}) : kind === "b" ? await mcp.x.b({}) : null;
