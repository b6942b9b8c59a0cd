const read = mcp.fs.read;
const { write, list: ls } = mcp.fs;
const { db: { query } } = mcp;
await read({});
await write({});
await ls({});
await query({});
