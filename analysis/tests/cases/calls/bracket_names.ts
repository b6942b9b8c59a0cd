await mcp["sequential-thinking"].sequentialthinking({ thought: "x" });
await mcp.db["query"]({ sql: "select 1" });
await mcp[`db`][`ping`]({});
