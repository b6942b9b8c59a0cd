// It is as if there were no try.
try {
  await mcp.a.one({});
  await mcp.a.two({});
} catch (error) {
  await mcp.a.undo({ error: error.message });
  throw error;
}
await mcp.a.end({});
