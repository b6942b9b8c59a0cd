let text;
try {
  text = await mcp.fs.read({ path: "a" });
} catch (e) {
  text = await mcp.fs.read({ path: "b" });
}
await mcp.a.use({ text });
