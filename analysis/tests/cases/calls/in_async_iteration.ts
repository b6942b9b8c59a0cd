for await (const page of await mcp.a.pages({})) await mcp.a.store({ page });
