const names = ["default.json", "production.json", "local.json"] as const;

const settled = await Promise.allSettled(
  names.map((name) => mcp.filesystem.read_text_file({ path: `config/${name}` })),
);

let merged: Record<string, unknown> = {};
const missing: string[] = [];
for (const [index, outcome] of settled.entries()) {
  if (outcome.status === "rejected") {
    missing.push(names[index]);
    continue;
  }
  const layer = await mcp.json.parse({ data: outcome.value });
  merged = await mcp.json.merge({ target: merged, patch: layer });
}

const port: unknown = await mcp.json.get({ data: merged, pointer: "/server/port", default: 8080 });
if (typeof port !== "number" || port < 1024) {
  throw new RangeError(`server.port is ${port}`);
}

const absent: string[] = [];
for (const pointer of ["/server/host", "/database/url"]) {
  const value: unknown = await mcp.json.get({ data: merged, pointer, default: null });
  if (value === null) absent.push(pointer);
}
if (absent.length > 0) throw new Error(`not set: ${absent.join(", ")}`);

const text: string = await mcp.json.stringify({ value: merged, indent: 2, sort_keys: true });
await mcp.filesystem.write_file({ path: "config/effective.json", content: `${text}\n` });
console.log(`merged ${names.length - missing.length} of ${names.length} files`);
return { port, missing };
