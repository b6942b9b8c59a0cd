let cursor = null;
while (true) {
  const page = await mcp.a.page({ cursor });
  await mcp.b.put({ items: page.items });
  cursor = page.next;
  if (!cursor) break;
}
await mcp.a.done({ cursor });
