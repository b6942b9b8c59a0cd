interface Node {
  name: string;
  type: "file" | "directory";
  children?: Node[];
}
interface Hashed {
  path: string;
  hash: string;
}

const root: string = args.root ?? ".";
const tree = JSON.parse(
  await mcp.filesystem.directory_tree({ path: root, excludePatterns: [".git", "node_modules"] }),
) as Node[];

function* filesOf(nodes: Node[], prefix: string): Generator<string> {
  for (const node of nodes) {
    const path = `${prefix}/${node.name}`;
    if (node.type === "directory") yield* filesOf(node.children ?? [], path);
    else yield path;
  }
}

const paths = [...filesOf(tree, root)].filter((path) => !path.endsWith(".lock"));
const hashed: Hashed[] = [];
const batchSize = 16;

for (let start = 0; start < paths.length; start += batchSize) {
  const batch = paths.slice(start, start + batchSize);
  const part = await Promise.all(
    batch.map(async (path): Promise<Hashed> => {
      const text: string = await mcp.filesystem.read_text_file({ path });
      return { path, hash: await mcp.crypto.hash({ data: text }) };
    }),
  );
  hashed.push(...part);
}

const groups: Record<string, Hashed[]> = await mcp.collections.group_by({ items: hashed, by: "hash" });
const duplicates = Object.values(groups).filter((group) => group.length > 1);

for (const [keep, ...rest] of duplicates) {
  if (!args.remove) continue;
  for (const { path } of rest) {
    await mcp.filesystem.move_file({ source: path, destination: `.trash/${path.replaceAll("/", "__")}` });
    console.log(`${path} is the same as ${keep.path}`);
  }
}
return { files: paths.length, duplicates: duplicates.map((group) => group.map((file) => file.path)) };
