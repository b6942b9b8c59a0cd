try {
  await mcp.a.risky({});
} catch {
  await mcp.a.rescue({});
} finally {
  await mcp.a.clean({});
}
