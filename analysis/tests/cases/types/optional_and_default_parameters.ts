const read = (path?: string, depth: number = 2) => mcp.fs.read({ path, depth });
return await read("x");
