type Loader = (text: string) => Promise<unknown[]>;

const loaders: Record<string, Loader | undefined> = {
  json: async (text) => {
    const value: unknown = await mcp.json.parse({ data: text });
    return Array.isArray(value) ? value : [value];
  },
  csv: async (text) => {
    const lines: string[] = await mcp.string.split({ text: text.trim(), separator: "\n" });
    const [head, ...rest] = lines.map((line) => line.split(","));
    return rest.map((cells) => Object.fromEntries(head.map((name, i) => [name, cells[i]])));
  },
  txt: async (text) => text.split("\n").filter(Boolean),
};

const inbox: string = args.inbox ?? "inbox";
const listing: string = await mcp.filesystem.list_directory({ path: inbox });
const names = listing
  .split("\n")
  .filter((line) => line.startsWith("[FILE] "))
  .map((line) => line.slice("[FILE] ".length));

let rows: unknown[] = [];
const ignored: string[] = [];
for (const name of names) {
  const extension = name.slice(name.lastIndexOf(".") + 1).toLowerCase();
  const load = loaders[extension];
  if (!load) {
    ignored.push(name);
    continue;
  }
  const text: string = await mcp.filesystem.read_text_file({ path: `${inbox}/${name}` });
  rows = rows.concat(await load(text));
  await mcp.filesystem.move_file({ source: `${inbox}/${name}`, destination: `${inbox}/done/${name}` });
}

const inserted = await mcp.sqlite.query({
  sql: "insert into inbox (data) select value from json_each(?)",
  parameters: [JSON.stringify(rows)],
});
console.log(`${inserted.changes} rows, ignored: ${ignored.join(", ") || "none"}`);
return { rows: rows.length, ignored };
