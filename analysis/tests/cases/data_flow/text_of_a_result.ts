const rows = await mcp.db.query({ sql: "select 1" });
await mcp.fs.write({ path: "x", content: JSON.stringify(rows, null, 2) });
