const prefixes = { ts: "// ", py: "# ", sql: "-- " } as const;
type Extension = keyof typeof prefixes;

const template: string = await mcp.filesystem.read_text_file({ path: args.header ?? "HEADER.txt" });
const now = await mcp.time.get_current_time({ timezone: "Europe/Paris" });
const header = template.trim().replaceAll("{{year}}", now.datetime.slice(0, 4));

const listings: string[] = await Promise.all(
  Object.keys(prefixes).map((extension) =>
    mcp.filesystem.search_files({ path: ".", pattern: `**/*.${extension}`, excludePatterns: ["vendor/**"] }),
  ),
);
const targets = listings.flatMap((listing) => (listing === "No matches found" ? [] : listing.split("\n")));
const contents: string = await mcp.filesystem.read_multiple_files({ paths: targets });

const added: string[] = [];
for (const block of contents.split("\n---\n")) {
  const colon = block.indexOf(":\n");
  const path = block.slice(0, colon);
  const body = block.slice(colon + 2);
  const prefix = prefixes[path.split(".").pop() as Extension];
  const wanted = header
    .split("\n")
    .map((line) => `${prefix}${line}`.trimEnd())
    .join("\n");
  if (body.startsWith(wanted)) continue;
  const shebang = body.startsWith("#!") ? body.slice(0, body.indexOf("\n") + 1) : "";
  await mcp.filesystem.write_file({
    path,
    content: `${shebang}${wanted}\n\n${body.slice(shebang.length)}`,
  });
  added.push(path);
}

if (added.length > 0) {
  await mcp.git.git_add({ repo_path: ".", files: added });
  const staged: string = await mcp.git.git_diff_staged({ repo_path: "." });
  const count = staged.match(/^diff --git/gm)?.length ?? 0;
  await mcp.git.git_commit({
    repo_path: ".",
    message: count === 1 ? "license: add a header" : `license: add ${count} headers`,
  });
}
return { files: targets.length, added };
