const count = 0;
let read_2 = 5;
export async function read(args: { path: string }) {
  const { count: inner = count } = {} as { count?: number };
  read_2 += inner + count;
  return mcp.filesystem.read_file({ path: args.path, now: new Date() });
}
export function helper(...all: number[]) { return all.length + count; }
