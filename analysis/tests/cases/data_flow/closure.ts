let total = 0;
const add = async (x: number) => {
  total += (await mcp.a.get({ x })).n;
};
await add(1);
await add(2);
await mcp.b.use({ total });
