const a = await mcp.a.one({});
if (!a.ok) throw new Error("no");
return await mcp.a.two({ n: 1 });
