interface Migration {
  version: number;
  name: string;
  sql: string;
}

const db = mcp.sqlite;
const folder: string = args.folder ?? "migrations";

await db.query({
  sql: "create table if not exists schema_version (version integer primary key, name text, at text)",
});
const { rows } = await db.query({ sql: "select version from schema_version" });
const done = new Set<number>(rows.map((row: { version: number }) => row.version));

const listing: string = await mcp.filesystem.list_directory({ path: folder });
const pending: Migration[] = [];
for (const [, digits, name] of listing.matchAll(/^\[FILE\] (\d+)_(\w+)\.sql$/gm)) {
  const version = Number(digits);
  if (done.has(version)) continue;
  const sql: string = await mcp.filesystem.read_text_file({ path: `${folder}/${digits}_${name}.sql` });
  if (sql.trim() === "") continue;
  pending.push({ version, name, sql });
}
pending.sort((a, b) => a.version - b.version);

const applied: string[] = [];
for (const { version, name, sql } of pending) {
  await db.query({ sql: "begin" });
  try {
    for (const statement of sql.split(/;\s*\n/).filter((part) => part.trim() !== "")) {
      await db.query({ sql: statement });
    }
    const at: string = await mcp.datetime.now({});
    await db.query({
      sql: "insert into schema_version values (?, ?, ?)",
      parameters: [version, name, at],
    });
    await db.query({ sql: "commit" });
    applied.push(`${version} ${name}`);
  } catch (error) {
    await db.query({ sql: "rollback" });
    throw new Error(`migration ${name} failed: ${(error as Error).message}`);
  }
}

if (applied.length > 0) {
  await mcp.filesystem.write_file({ path: `${folder}/APPLIED`, content: applied.join("\n") });
}
return { applied };
