interface Rule {
  search: string;
  replacement: string;
  regex?: boolean;
}

const raw: string = await mcp.filesystem.read_text_file({ path: "scripts/rules.json" });
const rules = (await mcp.json.parse({ data: raw })) as Rule[];
const source: string = await mcp.filesystem.read_text_file({ path: args.file });

const result = await rules.reduce<Promise<string>>(async (previous, { search, replacement, regex }) => {
  const what = regex ? { pattern: search } : { search };
  return await mcp.string.replace({ text: await previous, replacement, ...what });
}, Promise.resolve(source));

if (result === source) {
  console.log("no rule matches");
  return { changed: false };
}

const length = await mcp.string.length({ text: result });
await mcp.filesystem.write_file({ path: args.file, content: result });

const diff: string = await mcp.git.git_diff_unstaged({ repo_path: "." });
const lines = diff.split("\n").filter((line) => /^[+-](?![+-])/.test(line));
if (lines.length > (args.limit ?? 200)) {
  await mcp.filesystem.write_file({ path: args.file, content: source });
  throw new Error(`${lines.length} lines would change, at most ${args.limit ?? 200} may`);
}
return { changed: true, words: length.words, rules: rules.length };
