const { items: [first, ...others], total = 0, meta: { page } } = await mcp.a.list({});
await mcp.b.use({ first, others, total, page });
