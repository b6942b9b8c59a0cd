const keep = new Set<string>(["main", "develop", ...(args.keep ?? [])]);
const { owner, repo } = args as { owner: string; repo: string };

const [merged, current] = await Promise.all([
  mcp.shell.exec({ command: ["git", "branch", "--merged", "main", "--format=%(refname:short)"] }),
  mcp.shell.exec({ command: ["git", "rev-parse", "--abbrev-ref", "HEAD"] }),
]);
const here: string = current.stdout.trim();
const candidates: string[] = merged.stdout
  .split("\n")
  .map((name: string) => name.trim())
  .filter((name: string) => name !== "" && !keep.has(name));

if (candidates.includes(here)) {
  await mcp.git.git_checkout({ repo_path: ".", branch_name: "main" });
}

const cutoff: string = await mcp.datetime.add({ datetime: await mcp.datetime.now({}), weeks: -2 });
const deleted: string[] = [];
const kept: string[] = [];

for (const name of candidates) {
  const last = await mcp.shell.exec({ command: ["git", "log", "-1", "--format=%cI", name] });
  const age: number = await mcp.datetime.diff({ start: last.stdout.trim(), end: cutoff, unit: "days" });
  if (age < 0) {
    kept.push(name);
    continue;
  }
  if (args.dryRun ?? true) {
    deleted.push(name);
    continue;
  }
  const removed = await mcp.shell.exec({ command: ["git", "branch", "-d", name] });
  (removed.exit_code === 0 ? deleted : kept).push(name);
}

interface Pull {
  number: number;
  head: { ref: string };
}
const open: Pull[] = await mcp.github.list_pull_requests({ owner, repo, state: "open" });
for (const pull of open.filter(({ head }) => deleted.includes(head.ref))) {
  await mcp.github.add_issue_comment({
    owner,
    repo,
    issue_number: pull.number,
    body: `The branch \`${pull.head.ref}\` was deleted: it is merged.`,
  });
}
return { deleted, kept };
