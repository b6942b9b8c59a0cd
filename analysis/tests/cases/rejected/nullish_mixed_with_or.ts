return (await mcp.a.b({})) ?? args.x || 1;
