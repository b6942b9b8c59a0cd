await mсp.fs.read({});
await mcp.fs.rеad({});
