await mcp.sql.run`select ${1}`;
String.raw`${await mcp.a.b({})}`;
