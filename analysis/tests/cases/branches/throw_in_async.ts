// An async function throws where it is awaited.
const load = async (id) => {
  const r = await mcp.a.load({ id });
  if (r.status !== 200) throw new Error("no");
  return r;
};
const p = load(1);
await mcp.a.meanwhile({});
const r = await p;
await mcp.a.after({ r });
await load(2).catch(() => null);
await mcp.a.caught({});
