import fs from "fs";
await mcp.filesystem.read_text_file({ path: "a" });
