await mcp.a.outer({ x: await mcp.a.inner({ y: await mcp.a.innermost({}) }) });
