interface Move {
  source: string;
  destination: string;
}

const inbox: string = args.inbox ?? "inbox";
const fs = mcp.filesystem;
const time = mcp.datetime;

const listing: string = await fs.search_files({ path: inbox, pattern: "**/*.jpg" });
const plan: Move[] = [];
const skipped: string[] = [];

for (const path of listing.split("\n").filter(Boolean)) {
  const info: string = await fs.get_file_info({ path });
  const modified = /^modified: (.+)$/m.exec(info)?.[1];
  if (!modified) {
    skipped.push(path);
    continue;
  }
  const taken = await time.parse({ text: modified });
  const month: string = await time.format({ datetime: taken.iso, format: "%Y-%m" });
  plan.push({ source: path, destination: `photos/${month}/${path.split("/").pop()}` });
}

if (args.dryRun) return { plan, skipped };

const folders = new Set(plan.map(({ destination }) => destination.slice(0, destination.lastIndexOf("/"))));
await Promise.all([...folders].map((path) => fs.create_directory({ path })));

function journal(files: typeof fs, path: string) {
  const lines: string[] = [];
  return {
    note(line: string): void {
      lines.push(line);
    },
    async flush(): Promise<void> {
      await files.write_file({ path, content: lines.join("\n") });
    },
  };
}

const moves = journal(mcp.filesystem, `${inbox}/moves.log`);
for (const { source, destination } of plan) {
  await fs.move_file({ source, destination });
  moves.note(`${source} -> ${destination}`);
}
await moves.flush();
return { moved: plan.length, skipped };
