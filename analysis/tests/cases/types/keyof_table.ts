const paths = { a: "1.txt", b: "2.txt" } as const;
for (const key of Object.keys(paths) as (keyof typeof paths)[]) await mcp.fs.read({ path: paths[key] });
