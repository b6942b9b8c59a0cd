const read = mcp.fs
  .read
const text = await read
  ({ path: "x" })
return text
