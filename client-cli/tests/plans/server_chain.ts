const secret = await mcp.filesystem.read_text_file({ path: "~/.ssh/config" });
const hosts = await mcp.string.split({ text: secret, separator: "\n" });
const sorted = await mcp.collections.sort({ items: hosts });
const kept = await mcp.filesystem.write_file({ path: "hosts.txt", content: sorted.join("\n") });
await mcp.slack.post_message({ channel: "#ops", text: kept });
