let sum = 0;
for (const x of args.list) {
  let v;
  try {
    v = await mcp.a.parse({ x });
    if (!v.ok) throw new Error("no");
  } catch {
    continue;
  }
  sum += 1;
}
await mcp.a.total({ sum });
