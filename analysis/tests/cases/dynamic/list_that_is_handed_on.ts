const views = ["status", "diff"];
helper(views);
for (const view of views) {
  await mcp.git[view]({});
}
