const r = await mcp.a.first({});
let n = 0;
do {
  await mcp.a.step({});
  n += 1;
} while (n < r.count);
await mcp.a.end({ n });
