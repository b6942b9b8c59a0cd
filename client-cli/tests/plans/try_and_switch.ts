let text = "";
try {
  text = await mcp.filesystem.read_text_file({ path: "a.txt" });
} catch (error) {
  await mcp.slack.post_message({ channel: "#ops", text: String(error) });
}
switch (text) {
  case "yes":
    await mcp.git.git_commit({ repo_path: ".", message: "yes" });
    break;
  default:
    await mcp.git.git_reset({ repo_path: "." });
}
while (await mcp.json.get({ data: text, pointer: "/more" })) {
  text = await mcp.string.slugify({ text });
}
