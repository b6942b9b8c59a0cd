module Tools { export const run = () => mcp.a.b({}); }
await Tools.run();
