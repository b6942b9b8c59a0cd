const [status, log] = await Promise.all([
  mcp.git.git_status({ repo_path: "." }),
  mcp.git.git_log({ repo_path: ".", max_count: 5 }),
]);
if (/nothing to commit/.test(status)) return "clean";
const diff = await mcp.git.git_diff_unstaged({ repo_path: "." });
const summary = {
  commits: log.commits.map((commit: any) => commit.message),
  added: (diff.match(/^\+/gm) || []).length,
};
const saved = await mcp.filesystem.write_file({ path: "review.json", content: JSON.stringify(summary, null, 2) });
return { ...summary, saved };
