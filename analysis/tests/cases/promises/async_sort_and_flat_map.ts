const size = async (path: string) => (await mcp.filesystem.read_text_file({ path })).length;
const sorted = args.paths.sort(async (a, b) => (await size(a)) - (await size(b)));
const lines = args.paths.flatMap(async (path) => [await size(path)]);
const right = args.paths.sort((a, b) => a.length - b.length).flatMap((path) => [path]);
return { sorted, lines, right };
