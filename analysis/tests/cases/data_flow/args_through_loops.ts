let text = "";
let count = 0;
for (const file of args.files) {
  await mcp.a.read({ file });
  text += file.name;
  count++;
}
await mcp.a.use({ text, count });
const names = args.files.map((file) => file.name);
await mcp.a.use({ names });
for (let i = 0; i < 3; i++) await mcp.a.try({ i, mode: "plain" });
for (const key in args) await mcp.a.one({ key });
