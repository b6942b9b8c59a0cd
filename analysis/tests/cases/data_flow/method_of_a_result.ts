const text = await mcp.fs.read({ path: "a" });
const lines = text.split("\n").filter((line: string) => line.trim());
await mcp.b.use({ lines, first: lines[0] });
