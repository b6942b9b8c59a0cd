const x = await load("a");
return await mcp.b.use({ x });
function load(path: string) {
  return mcp.fs.read({ path });
}
