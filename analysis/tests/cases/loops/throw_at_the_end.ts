for (const path of args.files) {
  const old = await mcp.a.read({ path });
  await mcp.a.edit({ path });
  const now = await mcp.a.read({ path });
  if (now.length < old.length) throw new Error(path);
}
await mcp.a.end({});
