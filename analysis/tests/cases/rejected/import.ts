import fs from "node:fs";
await mcp.a.b({});
