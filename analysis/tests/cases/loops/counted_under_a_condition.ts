const r = await mcp.a.read({});
let n = 0;
let m = 0;
for (const x of args.list) {
  if (r[x]) n++;
}
args.list.forEach((x) => {
  if (r[x]) m++;
});
await mcp.a.end({ n });
await mcp.a.end({ m });
