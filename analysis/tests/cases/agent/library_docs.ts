const libraries: string[] = args.libraries;
const topic: string | undefined = args.topic;

const resolve = mcp.context7["resolve-library-id"];
const docsOf = mcp.context7["get-library-docs"];

const pages: string[] = [];
let tokens: number = args.tokens ?? 20_000;

for (const libraryName of libraries) {
  if (tokens <= 0) break;
  const id: string = await resolve({ libraryName });
  const text: string = await docsOf({
    context7CompatibleLibraryID: id,
    topic,
    tokens: Math.min(tokens, 5000),
  });
  tokens -= Math.ceil(text.length / 4);

  if (/\bdeprecated\b/i.test(text.slice(0, 500))) {
    const alternative = await mcp.tavily.search({ query: `alternative to ${libraryName}`, max_results: 1 });
    pages.push(`# ${libraryName}\n\nDeprecated, see ${alternative.results[0]?.url ?? "nothing yet"}`);
  } else {
    pages.push(`# ${libraryName}\n\n${text}`);
  }
}

const all = pages.join("\n\n---\n\n");
const [, length] = await Promise.all([
  mcp.filesystem.write_file({ path: `context/${topic ?? "all"}.md`, content: all }),
  mcp.string.length({ text: all }),
]);

const seen = await mcp.memory.open_nodes({ names: libraries });
const stored = new Map<string, string[]>(
  seen.entities.map((entity: { name: string; observations: string[] }) => [entity.name, entity.observations]),
);
for (const page of pages) {
  const [heading, , summary = ""] = page.split("\n");
  const name = heading.slice(2);
  if (stored.get(name)?.includes(summary)) continue;
  const contents = [summary, ...(topic ? [`topic: ${topic}`] : [])];
  if (stored.has(name)) {
    await mcp.memory.add_observations({ observations: [{ entityName: name, contents }] });
  } else {
    await mcp.memory.create_entities({ entities: [{ name, entityType: "library", observations: contents }] });
  }
}
return { libraries: pages.length, words: length.words, tokensLeft: Math.max(tokens, 0) };
