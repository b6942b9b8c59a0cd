interface Failure {
  file: string;
  line: number;
  message: string;
}

const maxRounds: number = args.maxRounds ?? 5;

function parseFailures(output: string): Failure[] {
  const found: Failure[] = [];
  for (const text of output.split("\n")) {
    const match = /^(.+?)\((\d+),\d+\): error TS\d+: (.*)$/.exec(text);
    if (match) found.push({ file: match[1], line: Number(match[2]), message: match[3] });
  }
  return found;
}

let round = 0;
let failures: Failure[] = [];
const touched = new Set<string>();

while (round < maxRounds) {
  round++;
  const result = await mcp.shell.exec({
    command: ["npx", "tsc", "--noEmit", "--pretty", "false"],
    timeout_ms: 120_000,
  });
  failures = parseFailures(result.stdout);
  if (result.exit_code === 0) break;

  const unused = failures.filter(({ message }) => message.includes("its value is never read"));
  if (unused.length === 0) break;

  for (const { file, line } of unused) {
    const text: string = await mcp.filesystem.read_text_file({ path: file });
    const old = text.split("\n")[line - 1];
    if (!old?.startsWith("import ")) continue;
    await mcp.filesystem.edit_file({ path: file, edits: [{ oldText: `${old}\n`, newText: "" }] });
    touched.add(file);
  }
}

if (touched.size > 0) {
  const diff: string = await mcp.git.git_diff_unstaged({ repo_path: "." });
  await mcp.filesystem.write_file({ path: "fixes.diff", content: diff });
}
return { rounds: round, left: failures.length, touched: [...touched] };
