await mcp[""].x({});
