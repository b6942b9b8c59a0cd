const [{ id }, [first]] = await Promise.all([mcp.x.one({}), mcp.x.many({})]);
await mcp.x.use({ id });
await mcp.x.use({ first });
