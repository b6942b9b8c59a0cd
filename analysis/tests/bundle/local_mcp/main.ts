import { mcp as other } from "./other.ts";
return [await mcp.json.parse({ data: "1" }), other.filesystem.read_file()];
