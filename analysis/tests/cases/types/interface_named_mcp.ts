interface mcp { a: number }
type args = { x: number };
await mcp.a.b({ x: args.x });
