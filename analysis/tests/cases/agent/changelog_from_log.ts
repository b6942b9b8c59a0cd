interface Commit {
  hash: string;
  type: string;
  scope: string | null;
  subject: string;
  breaking: boolean;
}

const titles: Record<string, string> = { feat: "Added", fix: "Fixed", perf: "Faster" };

const tags = await mcp.shell.exec({ command: ["git", "tag", "--sort=-creatordate"] });
const last: string | null = tags.stdout.split("\n").find((tag: string) => /^v\d/.test(tag)) ?? null;
const range = last ? `${last}..HEAD` : "HEAD";

const log = await mcp.shell.exec({
  command: ["git", "log", "--no-merges", "--pretty=%H%x09%s", range],
});

function parseCommit(line: string): Commit | null {
  const [hash, message = ""] = line.split("\t");
  const match = /^(\w+)(?:\(([^)]+)\))?(!)?: (.+)$/.exec(message);
  if (!match) return null;
  return { hash, type: match[1], scope: match[2] ?? null, breaking: match[3] === "!", subject: match[4] };
}

const commits: Commit[] = log.stdout
  .trim()
  .split("\n")
  .map(parseCommit)
  .filter((commit: Commit | null): commit is Commit => commit !== null && commit.type in titles);

if (commits.length === 0) return { version: null };

function nextVersion(from: string | null, all: Commit[]): string {
  const [major, minor, patch] = (from ?? "v0.0.0").slice(1).split(".").map(Number);
  if (all.some((commit) => commit.breaking)) return `${major + 1}.0.0`;
  if (all.some((commit) => commit.type === "feat")) return `${major}.${minor + 1}.0`;
  return `${major}.${minor}.${patch + 1}`;
}

const breaking: string[] = [];
for (const commit of commits) {
  if (!commit.breaking) continue;
  const shown: string = await mcp.git.git_show({ repo_path: ".", revision: commit.hash });
  breaking.push(/BREAKING CHANGE: (.*)/.exec(shown)?.[1] ?? commit.subject);
}

const version = nextVersion(last, commits);
const today: string = await mcp.datetime.now({});
const existing: string = await mcp.filesystem
  .read_text_file({ path: "CHANGELOG.md" })
  .catch(() => "# Changelog\n");

const sections = Object.entries(titles).map(([type, title]) => {
  const items = commits
    .filter((commit) => commit.type === type)
    .map(({ scope, subject }) => `- ${scope ? `**${scope}**: ` : ""}${subject}`);
  return items.length > 0 ? `### ${title}\n${items.join("\n")}` : "";
});

const entry = [
  `## ${version}, ${today.slice(0, 10)}`,
  breaking.length > 0 ? `### Breaking\n${breaking.map((text) => `- ${text}`).join("\n")}` : "",
  ...sections,
].filter(Boolean);

const [title, ...rest] = existing.split("\n");
await mcp.filesystem.write_file({
  path: "CHANGELOG.md",
  content: [title, "", ...entry, ...rest].join("\n"),
});

if (args.commit) {
  await mcp.git.git_add({ repo_path: ".", files: ["CHANGELOG.md"] });
  await mcp.git.git_commit({ repo_path: ".", message: `docs: changelog for ${version}` });
}
return { version, commits: commits.length };
