function read() {
  return await mcp.a.b({});
}
return read();
