async () => {
  const x: number = await mcp.a.b({});
  return x;
};
