const r = await mcp.a.one({});
const label = { toString: () => `<${r.name}>` };
await mcp.a.use({ text: `${label}`, sum: "" + label });
