async ({ mcp }) => { await mcp.a.b({}); }
