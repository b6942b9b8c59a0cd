await mcp.a.b({ path: "x", depth: 2 } satisfies { path: string; depth: number });
