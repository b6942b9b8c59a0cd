const all = { ...mcp.fs };
const list = [...mcp.list];
