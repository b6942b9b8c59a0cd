globalThis.mcp.a.b({});
const id = globalThis.crypto.randomUUID();
