const o = { __proto__: { fs: mcp.fs } };
await o.fs.read({});
