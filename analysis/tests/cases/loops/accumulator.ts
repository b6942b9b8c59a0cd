const out: string[] = [];
for (const path of args.paths) out.push(await mcp.fs.read({ path }));
return await mcp.json.merge({ out });
