interface Row { id: number }
const rows = await mcp.db.query<Row[]>({ sql: "select 1" });
return rows;
