// Each call gives what it was given, also through a list that is filled inside.
const lines = (text) => {
  const out = [];
  text.split("\n").forEach((line) => {
    if (line) out.push(line);
  });
  return out;
};
const r = await mcp.a.one({});
const s = await mcp.a.two({});
const x = lines(r);
const y = lines(s);
await mcp.a.use({ x });
await mcp.a.use({ y });
