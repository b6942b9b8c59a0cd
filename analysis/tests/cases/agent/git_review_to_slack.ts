const repo: string = args.repo ?? ".";
const git = mcp.git;

const [status, staged, unstaged] = await Promise.all([
  git.git_status({ repo_path: repo }),
  git.git_diff_staged({ repo_path: repo }),
  git.git_diff_unstaged({ repo_path: repo, context_lines: 1 }),
]);

if (/working tree clean/.test(status)) {
  console.log("nothing to review");
  return { reviewed: false };
}

function countChanges(diff: string): { added: number; removed: number } {
  let added = 0;
  let removed = 0;
  for (const line of diff.split("\n")) {
    if (line.startsWith("+") && !line.startsWith("+++")) added += 1;
    else if (line.startsWith("-") && !line.startsWith("---")) removed += 1;
  }
  return { added, removed };
}

const before = countChanges(staged);
const after = countChanges(unstaged);

const check = await mcp.shell.exec({
  command: ["npm", "run", "lint", "--silent"],
  cwd: repo,
  timeout_ms: 60_000,
});
const verdict = check.exit_code === 0 ? "lint is clean" : `lint fails:\n${check.stdout.slice(0, 500)}`;

const message = [
  `*${repo}*: staged +${before.added}/-${before.removed}, not staged +${after.added}/-${after.removed}`,
  verdict,
].join("\n");
const posted = await mcp.slack.post_message({ channel: args.channel, text: message });

if (check.exit_code !== 0 && posted.ok) {
  await mcp.slack.post_message({
    channel: args.channel,
    thread_ts: posted.ts,
    text: "Please fix lint before you commit.",
  });
}
return { reviewed: true, staged: before, unstaged: after };
