const paths: string[] = ["a.md", "b.md", "c.md"];
const texts = await Promise.all(paths.map((path) => mcp.filesystem.read_text_file({ path })));
const [now, branch] = await Promise.all([mcp.datetime.now({}), mcp.git.git_branch({ repo_path: "." })]);
return { texts, now, branch };
