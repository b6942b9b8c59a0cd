export default async function main() { return await mcp.a.b({}); }
