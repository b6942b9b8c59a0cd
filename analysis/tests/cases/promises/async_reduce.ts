const size = async (path: string) => (await mcp.filesystem.read_text_file({ path })).length;
const wrong = await args.paths.reduce(async (sum, path) => sum + (await size(path)), 0);
const right = await args.paths.reduce(async (sum, path) => (await sum) + (await size(path)), 0);
const first = await args.paths.reduce(async (found, path) => (found ? await found : await size(path)), null);
return { wrong, right, first };
