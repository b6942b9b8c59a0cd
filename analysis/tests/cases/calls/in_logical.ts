const x = cached ?? (await mcp.a.load({}));
ready || (await mcp.a.prepare({}));
let y = null;
y ??= await mcp.a.late({});
