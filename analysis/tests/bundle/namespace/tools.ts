export type Path = string;
export const NAME = "tools", other = 1;
export const read = (path: Path) => mcp.filesystem.read_file({ path });
