declare const mcp: any;
declare function args(): void;
interface mcp { a: string }
type Client = typeof mcp;
await mcp.a.b({});
