import type { Row } from "./rows";
return await mcp.a.b({});
