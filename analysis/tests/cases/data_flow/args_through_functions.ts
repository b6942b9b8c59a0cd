// Each call gives back what it was given.
const clean = (text: string) => text.trim().toLowerCase();
const twice = (text: string) => clean(text) + clean(text);
function outer() {
  return args.inner + "!";
}
await mcp.a.use({ x: clean(args.x) });
await mcp.a.use({ x: clean("X") });
await mcp.a.use({ x: twice(args.x) });
await mcp.a.use({ x: twice("X") });
await mcp.a.use({ x: outer() });
const save = async (path: string) => await mcp.a.save({ path: `${path}.md` });
await save(args.path);
const keep = async (path: string) => await mcp.a.keep({ path: `${path}.md` });
await keep("here");
