// What is thrown flows to whoever catches it, not to what comes after.
const r = await mcp.a.one({});
const s = await mcp.a.two({});
try {
  if (!r.ok) throw new Error(`no: ${s.why}`);
} catch (error) {
  await mcp.a.caught({ text: error.message });
}
const check = (value) => {
  if (!value.ok) throw new Error(value.why);
};
try {
  check(s);
} catch (error) {
  await mcp.a.caught({ error });
}
const fetch = async () => {
  throw new Error(r.why);
};
await fetch().catch((reason) => mcp.a.caught({ reason }));
await mcp.a.last({ fixed: 1 });
