let cursor = args.start;
for (let page = 0; page < 5; page++) {
  const got = await mcp.github.list_issues({ owner: "o", repo: "r", after: cursor });
  const kept = await mcp.sqlite.write_query({ query: `insert ${JSON.stringify(got.items)}` });
  cursor = kept.last;
}
