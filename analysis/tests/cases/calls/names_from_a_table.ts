const views = ["status", "diff"] as const;
const out = {};
for (const view of views) {
  out[view] = await mcp.git[view]({});
}
const kinds = { text: "string", data: "json" };
await mcp[kinds.text].join({ parts: views.map((view) => out[view]) });
for (const [, name] of Object.entries(kinds)) {
  await mcp[name].end({});
}
