for await (const page of mcp.a.pages({})) await mcp.a.store({ page });
