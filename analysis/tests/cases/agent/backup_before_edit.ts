const files: string[] = args.files;
const flat = (path: string): string => path.replaceAll("/", "__");

const now: string = await mcp.datetime.now({ timezone: "UTC" });
const backup = `.backup/${now.replace(/[:.]/g, "-")}`;
await mcp.filesystem.create_directory({ path: backup });

for (const path of files) {
  const original: string = await mcp.filesystem.read_text_file({ path });
  await mcp.filesystem.write_file({ path: `${backup}/${flat(path)}`, content: original });
  await mcp.filesystem.edit_file({ path, edits: args.edits });
  const changed: string = await mcp.filesystem.read_text_file({ path });
  if (changed.length < original.length / 2) {
    await mcp.filesystem.write_file({ path, content: original });
    throw new Error(`${path} would lose more than half of its text`);
  }
}

const test = await mcp.shell.exec({ command: args.testCommand ?? ["npm", "test"] });
console.log(`the test ended with ${test.exit_code}`);
if (test.exit_code !== 0) {
  for (const path of files) {
    const saved: string = await mcp.filesystem.read_text_file({ path: `${backup}/${flat(path)}` });
    await mcp.filesystem.write_file({ path, content: saved });
  }
  return { edited: false, output: test.stderr.slice(-2000) };
}

await mcp.filesystem.write_file({ path: `${backup}/test-output.txt`, content: test.stdout });
return { edited: true, files: files.length };
