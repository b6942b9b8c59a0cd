type Todo = { file: string; line: number; text: string; owner: string | null };

const listing: string = await mcp.filesystem.search_files({
  path: args.dir ?? ".",
  pattern: "**/*.ts",
  excludePatterns: ["**/node_modules/**"],
});
const files = listing.split("\n").filter(Boolean);
const started: string = await mcp.datetime.now({ timezone: "UTC" });

function parseTodos(file: string, text: string): Todo[] {
  const out: Todo[] = [];
  const lines = text.split("\n");
  for (let i = 0; i < lines.length; i++) {
    const match = /\b(?:TODO|FIXME)(?:\((\w+)\))?:?\s*(.*)/.exec(lines[i]);
    if (!match) continue;
    out.push({ file, line: i + 1, text: match[2].trim(), owner: match[1] ?? null });
  }
  return out;
}

const todos: Todo[] = [];
const unreadable: string[] = [];
for (const file of files) {
  try {
    const text: string = await mcp.filesystem.read_text_file({ path: file });
    todos.push(...parseTodos(file, text));
  } catch (error) {
    unreadable.push(`${file}: ${(error as Error).message}`);
  }
}

const byOwner: Record<string, Todo[]> = await mcp.collections.group_by({ items: todos, by: "owner" });
const counts: Record<string, number> = await mcp.collections.count_by({ items: todos, by: "file" });
const busiest = Object.entries(counts)
  .sort(([, a], [, b]) => b - a)
  .slice(0, 10)
  .map(([file, count]) => `${count} ${file}`);

const sections = Object.entries(byOwner).map(([owner, items]) => {
  const rows = items.map((todo) => `- ${todo.file}:${todo.line} ${todo.text}`);
  return [`## ${owner === "null" ? "nobody" : owner}`, ...rows].join("\n");
});
if (unreadable.length > 0) sections.push(`## Not read\n${unreadable.join("\n")}`);

await mcp.filesystem.write_file({
  path: `reports/todo-${started.slice(0, 10)}.md`,
  content: ["# Open work", ...sections, "## Busiest files", ...busiest].join("\n\n"),
});
return { todos: todos.length, owners: Object.keys(byOwner).length };
