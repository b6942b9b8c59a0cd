const isText = (value: unknown): value is string => typeof value === "string";
const value = await mcp.a.b({});
if (isText(value)) await mcp.c.d({ value });
