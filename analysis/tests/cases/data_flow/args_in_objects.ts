class Notes {
  list: string[] = [];
  add(text: string) {
    this.list.push(text);
  }
}
const notes = new Notes();
notes.add(args.note);
await mcp.a.use({ notes: notes.list });
const box = { path: "x" };
box.path = args.path;
await mcp.a.use({ path: box.path });
const table = new Map();
table.set("a", args.a);
await mcp.a.use({ a: table.get("a") });
const untouched = [];
untouched.push("b");
await mcp.a.use({ untouched });
