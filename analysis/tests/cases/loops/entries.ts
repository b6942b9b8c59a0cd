const table = { a: 1, b: 2 };
for (const [name, value] of Object.entries(table)) await mcp.x.put({ name, value });
