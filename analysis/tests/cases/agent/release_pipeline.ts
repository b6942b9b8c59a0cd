type Level = "patch" | "minor" | "major";

interface Pull {
  number: number;
  title: string;
  labels: string[];
  author: string;
}

const { owner, repo, channel } = args as { owner: string; repo: string; channel: string };
const dryRun: boolean = args.dryRun ?? true;
const { git, filesystem: fs, shell, github } = mcp;

const status: string = await git.git_status({ repo_path: "." });
if (!status.includes("working tree clean")) throw new Error("the working tree is not clean");

const manifest = JSON.parse(await fs.read_text_file({ path: "package.json" })) as {
  version: string;
  workspaces?: string[];
};
const [since, head] = await Promise.all([
  shell.exec({ command: ["git", "log", "-1", "--format=%cI", `v${manifest.version}`] }),
  shell.exec({ command: ["git", "rev-parse", "HEAD"] }),
]);

async function mergedPulls(after: string): Promise<Pull[]> {
  const found: Pull[] = [];
  for (let page = 1; ; page++) {
    const pulls = await github.list_pull_requests({
      owner,
      repo,
      state: "closed",
      sort: "updated",
      direction: "desc",
      per_page: 50,
      page,
    });
    for (const { number, title, labels, user, merged_at } of pulls) {
      if (!merged_at || merged_at <= after) continue;
      found.push({
        number,
        title,
        labels: labels.map((label: { name: string }) => label.name),
        author: user.login,
      });
    }
    if (pulls.length < 50 || pulls[49].updated_at <= after) return found;
  }
}

const pulls = await mergedPulls(since.stdout.trim());
if (pulls.length === 0) {
  console.log("nothing to release");
  return { released: false };
}

const hasLabel = (label: string): boolean => pulls.some((pull) => pull.labels.includes(label));
const level: Level = hasLabel("breaking") ? "major" : hasLabel("feature") ? "minor" : "patch";

function bump(version: string, by: Level): string {
  const [major, minor, patch] = version.split(".").map(Number);
  switch (by) {
    case "major":
      return `${major + 1}.0.0`;
    case "minor":
      return `${major}.${minor + 1}.0`;
    default:
      return `${major}.${minor}.${patch + 1}`;
  }
}
const next = bump(manifest.version, level);

const suites = ["unit", "integration"] as const;
const outcomes = await Promise.all(
  suites.map(async (suite) => {
    const run = await shell.exec({ command: ["npm", "run", `test:${suite}`], timeout_ms: 600_000 });
    return { suite, ok: run.exit_code === 0, tail: run.stdout.slice(-500) as string };
  }),
);
const broken = outcomes.filter((outcome) => !outcome.ok);
if (broken.length > 0) {
  await mcp.slack.post_message({
    channel,
    text: `${repo} ${next} is not released:\n${broken.map(({ suite, tail }) => `${suite}\n${tail}`).join("\n")}`,
  });
  return { released: false, broken: broken.map((outcome) => outcome.suite) };
}

const sections: Record<string, string[]> = { Features: [], Fixes: [], Other: [] };
for (const { number, title, labels, author } of pulls) {
  const section = labels.includes("feature") ? "Features" : labels.includes("bug") ? "Fixes" : "Other";
  sections[section].push(`- ${title} (#${number}, @${author})`);
}
const body = Object.entries(sections)
  .filter(([, items]) => items.length > 0)
  .map(([title, items]) => `## ${title}\n${items.join("\n")}`)
  .join("\n\n");
const short: string = await mcp.string.truncate({ text: body, length: 1500 });

const manifests = ["package.json", ...(manifest.workspaces ?? []).map((folder) => `${folder}/package.json`)];
for (const path of manifests) {
  await fs.edit_file({
    path,
    edits: [{ oldText: `"version": "${manifest.version}"`, newText: `"version": "${next}"` }],
    dryRun,
  });
}
const changelog: string = await fs.read_text_file({ path: "CHANGELOG.md" });
if (dryRun) return { released: false, next, notes: short };

await fs.write_file({ path: "CHANGELOG.md", content: `# ${next}\n\n${body}\n\n${changelog}` });
await git.git_add({ repo_path: ".", files: ["CHANGELOG.md", ...manifests] });
await git.git_commit({ repo_path: ".", message: `release: ${next}` });

let release: { html_url: string } | null = null;
for (let attempt = 1; release === null && attempt <= 3; attempt++) {
  const pushed = await shell.exec({ command: ["git", "push", "origin", "HEAD"] });
  if (pushed.exit_code !== 0) {
    await shell.exec({ command: ["git", "pull", "--rebase"] });
    continue;
  }
  try {
    release = await github.create_release({ owner, repo, tag_name: `v${next}`, name: next, body });
  } catch (error) {
    console.warn(`attempt ${attempt}: ${(error as Error).message}`);
  }
}
if (release === null) throw new Error(`${next} is committed but has no release`);

await Promise.all([
  mcp.slack.post_message({ channel, text: `*${repo} ${next}*: ${release.html_url}\n${short}` }),
  mcp.memory.create_entities({
    entities: [
      {
        name: `${repo} ${next}`,
        entityType: "release",
        observations: [release.html_url, `after ${head.stdout.trim()}`, `${pulls.length} pull requests`],
      },
    ],
  }),
]);
return { released: true, next, url: release.html_url };
