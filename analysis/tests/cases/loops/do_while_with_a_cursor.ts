let cursor = null;
do {
  const page = await mcp.x.list({ cursor });
  cursor = page.next;
} while (cursor);
