const user = await mcp.x.user({});
if (!user) throw new Error("no user");
await mcp.x.use({ id: user.id });
