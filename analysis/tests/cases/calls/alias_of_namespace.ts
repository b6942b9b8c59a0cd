const fs = mcp.filesystem;
const { tavily: web } = mcp;
await fs.read_file({ path: "a" });
await web.search({ query: "b" });
