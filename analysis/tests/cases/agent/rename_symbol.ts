interface Change {
  path: string;
  count: number;
}

const oldName: string = args.from;
const newName: string = args.to;
const root: string = args.root ?? "src";

if (!/^[A-Za-z_$][\w$]*$/.test(newName)) {
  throw new Error(`\`${newName}\` is not an identifier`);
}

const { search_files, read_text_file, edit_file, write_file } = mcp.filesystem;

const found: string = await search_files({
  path: root,
  pattern: "**/*.ts",
  excludePatterns: ["**/*.d.ts"],
});
const paths = found.split("\n").filter((line) => line.endsWith(".ts"));
const changes: Change[] = [];

for (const path of paths) {
  const word = new RegExp(`\\b${oldName}\\b`, "g");
  const text: string = await read_text_file({ path });
  const count = (text.match(word) ?? []).length;
  if (count === 0) continue;
  const edits = text
    .split("\n")
    .filter((line) => line.search(word) >= 0)
    .map((line) => ({ oldText: line, newText: line.replace(word, newName) }));
  await edit_file({ path, edits, dryRun: args.dryRun === true });
  changes.push({ path, count });
}

if (changes.length === 0) return { renamed: 0 };
const rows = changes.map(({ path, count }) => `| ${path} | ${count} |`);
await write_file({
  path: "rename-report.md",
  content: ["| file | places |", "|---|---|", ...rows].join("\n"),
});
return { renamed: changes.reduce((sum, change) => sum + change.count, 0), files: changes.length };
