let t = mcp.a.first;
for (let i = 0; i < 3; i++) {
  await t({ i });
  t = mcp.a.next;
}
