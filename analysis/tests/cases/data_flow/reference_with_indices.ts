const a = await mcp.a.list({});
await mcp.b.use({ id: a.items[0].id, all: a["items"], n: a.items[args.n] });
