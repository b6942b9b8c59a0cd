outer: for (;;) {
  await mcp.a.b({});
  break outer;
}
