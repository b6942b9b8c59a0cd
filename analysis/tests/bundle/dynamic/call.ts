export const call = (name: string) => mcp.filesystem[name]({ path: "." });
