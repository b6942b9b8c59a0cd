async function load(path: string) {
  const text = await mcp.fs.read({ path });
  return text.trim();
}
const list = await mcp.fs.list({});
const text = await load(list.entries[0]);
await mcp.b.use({ text });
