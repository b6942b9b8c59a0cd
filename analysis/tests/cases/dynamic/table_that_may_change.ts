const names = { a: "read" };
change(names);
await mcp.fs[names.a]({});
