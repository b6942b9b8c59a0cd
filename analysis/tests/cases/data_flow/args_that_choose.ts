// What `args` chooses among is made from it; what it only lets happen is not.
const path = args.long ? "a/long/path" : "path";
let mode = "fast";
if (args.safe) mode = "safe";
await mcp.a.use({ path, mode, fallback: args.name ?? "none", both: args.on && "on" });
if (args.more) await mcp.a.more({ text: "the same", path: "x" });
await mcp.a.use(args.all ? { deep: 1 } : { deep: 2 });
const known = () => {
  if (!args.name) throw new Error("no name");
  return "known";
};
await mcp.a.use({ known: known() });
