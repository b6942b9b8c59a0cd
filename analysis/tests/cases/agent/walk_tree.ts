type Entry = { path: string; size: number };

const skip = new Set(["node_modules", ".git", "target"]);
const { list_directory, get_file_info, write_file } = mcp.filesystem;

async function walk(dir: string): Promise<Entry[]> {
  const listing: string = await list_directory({ path: dir });
  const found: Entry[] = [];
  for (const line of listing.split("\n")) {
    const name = line.replace(/^\[(FILE|DIR)\] /, "");
    const path = `${dir}/${name}`;
    if (line.startsWith("[DIR]")) {
      if (!skip.has(name)) found.push(...(await walk(path)));
    } else if (line.startsWith("[FILE]")) {
      const info: string = await get_file_info({ path });
      found.push({ path, size: Number(/size: (\d+)/.exec(info)?.[1] ?? 0) });
    }
  }
  return found;
}

const files = await walk(args.root ?? ".");
const large = files.filter(({ size }) => size > 1_000_000).sort((a, b) => b.size - a.size);

const stats = await mcp.math.stats({ numbers: files.map((file) => file.size) });
await write_file({
  path: "large-files.txt",
  content: large.map(({ path, size }) => `${size}\t${path}`).join("\n"),
});
await write_file({ path: "sizes.json", content: JSON.stringify({ total: stats.sum, mean: stats.mean }) });

const byFolder: Record<string, number> = {};
for (const { path, size } of files) {
  const folder = path.split("/").slice(0, 2).join("/");
  byFolder[folder] ??= 0;
  byFolder[folder] += size;
}
const [heaviest] = Object.entries(byFolder).sort(([, a], [, b]) => b - a);
if (heaviest && heaviest[1] > (args.quota ?? 50_000_000)) {
  const tracked = await mcp.shell.exec({ command: ["git", "ls-files", heaviest[0]] });
  const untracked = files.filter(({ path }) => path.startsWith(heaviest[0]) && !tracked.stdout.includes(path));
  await write_file({ path: "untracked.txt", content: untracked.map(({ path }) => path).join("\n") });
}
return { large: large.length, heaviest: heaviest?.[0] ?? null };
