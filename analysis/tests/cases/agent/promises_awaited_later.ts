const statusPromise = mcp.git.git_status({ repo_path: "." });
const logPromise = mcp.git.git_log({ repo_path: ".", max_count: 30 });
const packagePromise = mcp.filesystem.read_text_file({ path: "package.json" });

const manifest = JSON.parse(await packagePromise) as { name: string; version: string };
const latestPromise = mcp.web.get({ url: `${args.registry}/${manifest.name}/latest` });

const log: string = await logPromise;
const commits = log
  .split("\n\n")
  .map((block) => /Message: (.*)/.exec(block)?.[1] ?? "")
  .filter((message) => message !== "");

const latest = await latestPromise;
const published: string = latest.status === 200 ? JSON.parse(latest.body).version : "0.0.0";
if (published === manifest.version) {
  return { release: false, reason: `${published} is published` };
}

const status: string = await statusPromise;
if (!status.includes("nothing to commit")) {
  throw new Error("commit or drop your changes first");
}

const notes: string = await mcp.string.template({
  template: "# {{name}} {{version}}\n\n{{items}}\n",
  values: {
    name: manifest.name,
    version: manifest.version,
    items: commits.map((commit) => `- ${commit}`).join("\n"),
  },
});

const [written, tagged] = await Promise.all([
  mcp.filesystem.write_file({ path: `releases/${manifest.version}.md`, content: notes }),
  mcp.shell.exec({ command: ["git", "tag", "-a", `v${manifest.version}`, "-m", notes] }),
]);
return { release: true, written, tagged: tagged.exit_code === 0 };
