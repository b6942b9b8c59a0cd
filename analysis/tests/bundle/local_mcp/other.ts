export const mcp = { filesystem: { read_file: () => "mine" } };
const args = 1;
