try {
  throw mcp.fs;
} catch (fs) {
  await fs.read({});
}
