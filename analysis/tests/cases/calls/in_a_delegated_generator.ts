async function* inner() { yield await mcp.a.b({}); }
async function* outer() { yield* inner(); }
for await (const item of outer()) await mcp.a.use({ item });
