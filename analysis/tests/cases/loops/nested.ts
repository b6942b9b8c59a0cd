for (const group of await mcp.x.groups({})) {
  for (const user of await mcp.x.users({ group })) await mcp.x.greet({ user });
}
