try {
  try { await mcp.x.a({}); } catch { await mcp.x.b({}); }
} catch (error) { await mcp.x.log({ text: error.message }); }
