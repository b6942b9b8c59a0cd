export const parse = async (data: string) => (await mcp.json.parse({ data })).prices as number[]
