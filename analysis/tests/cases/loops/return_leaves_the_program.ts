let n = 0;
while (n < 1) {
  n++;
  await mcp.fs.read({ path: "a" });
  return 1;
}
await mcp.fs.write({ path: "b", content: "" });
