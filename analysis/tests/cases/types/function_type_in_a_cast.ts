const run = args.run as unknown as (path: string) => Promise<void>;
const text = (await (mcp.fs.read as (a: object) => Promise<string>)({ path: "x" })) as string;
return text;
