const TOOLS = Object.freeze({ read: mcp.fs.read, write: mcp.fs.write });
const NAMES = Object.freeze({ list: "list" } as const);
const found = await mcp.fs[NAMES.list]({});
for (const [name, tool] of Object.entries(TOOLS)) await tool({ name, found });
