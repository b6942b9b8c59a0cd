const terms: string[] = args.terms;
const roots = ["src", "tests", "docs"];
const hits = new Map<string, string>();

search: for (const term of terms) {
  for (const root of roots) {
    const listing: string = await mcp.filesystem.search_files({ path: root, pattern: `**/*${term}*` });
    if (listing === "No matches found") continue;
    for (const path of listing.split("\n")) {
      const text: string = await mcp.filesystem.read_text_file({ path, head: 200 });
      if (text.includes(term)) {
        hits.set(term, path);
        continue search;
      }
    }
  }
  const web = await mcp.tavily.search({ query: `${args.project} "${term}"`, max_results: 1 });
  if (web.results.length === 0) break search;
  hits.set(term, web.results[0].url);
}

const unknown = terms.filter((term) => !hits.has(term));
const lines = [...hits].map(([term, place]) => `- **${term}**: ${place}`).sort();
await mcp.filesystem.write_file({
  path: "GLOSSARY.md",
  content: ["# Glossary", "", ...lines].join("\n"),
});

if (unknown.length > 0) {
  const today: string = await mcp.datetime.now({});
  await mcp.filesystem.write_file({
    path: "GLOSSARY-OPEN.md",
    content: [`Not found on ${today.slice(0, 10)}:`, ...unknown.map((term) => `- ${term}`)].join("\n"),
  });
}
return { found: hits.size, unknown };
