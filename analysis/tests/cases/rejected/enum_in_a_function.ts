async function f() {
  enum Level { Low, High }
  return await mcp.a.b({ level: Level.Low });
}
return await f();
