const m = mcp;
await m.fs.read({ path: "a" });
