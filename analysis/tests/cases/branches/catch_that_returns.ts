let text;
try {
  text = await mcp.fs.read({ path: "a" });
} catch (e) {
  return await mcp.a.report({ why: e.message });
}
await mcp.a.use({ text });
