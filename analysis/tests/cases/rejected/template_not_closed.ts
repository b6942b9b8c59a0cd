await mcp.a.b({ text: `one ${args.x} });
