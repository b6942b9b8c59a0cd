//! Programs of any length to measure.

/// A block of a typical agent program: 10 lines, 3 calls.
const PIECE: &str = r#"{
const found: { path: string; lines: number }[] = [];
const listing = await mcp.filesystem.list_directory({ path: args.root ?? "." });
const entries = listing.entries.filter((entry: { path: string; size: number }) => entry.size > 0);
for (const entry of entries.slice(0, 10)) {
  const text = await mcp.filesystem.read_file({ path: `${args.root}/${entry.path}` });
  if (text.includes("TODO")) found.push({ path: entry.path, lines: text.split("\n").length });
}
await mcp.json.stringify({ value: { found, count: entries.length } });
}
"#;

/// Returns a program with this number of lines, a multiple of ten.
pub(crate) fn program(lines: usize) -> String {
    PIECE.repeat(lines / 10)
}
