let last = null;
for (const x of args.list) {
  const before = last;
  last = await mcp.a.make({ x });
  await mcp.a.link({ before });
}
