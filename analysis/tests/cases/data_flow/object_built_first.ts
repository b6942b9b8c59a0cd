const a = await mcp.a.one({});
const input = { id: a.id, kind: "x", nested: { id: a.nested.id } };
await mcp.b.use(input);
await mcp.b.use({ ...input, extra: input.nested.id });
