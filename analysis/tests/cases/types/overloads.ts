function read(path: string): Promise<string>;
function read(path: string, all: boolean): Promise<string>;
function read(path: any) { return mcp.fs.read({ path }); }
return await read("x");
