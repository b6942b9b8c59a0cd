async function walk(path: string) {
  const list = await mcp.fs.list({ path });
  for (const entry of list) if (entry.dir) await walk(entry.path);
}
await walk("/");
