const everything = mcp.everything;
const wanted = ["PATH", "HOME", "LANG", "EDITOR"] as const;

const env: Record<string, string | undefined> = await everything["get-env"]({});
const present = wanted.filter((name) => env[name] !== undefined);

const sum = await everything["get-sum"]({ a: present.length, b: wanted.length });
const echo = await mcp["everything"].echo({ message: `set: ${present.join(", ")}` });
const weather = await everything["get-structured-content"]({ location: args.city ?? "Chicago" });

const id: string | null = await mcp.context7["resolve-library-id"]({ libraryName: args.library });
const docs: string = id
  ? await mcp.context7["get-library-docs"]({
      context7CompatibleLibraryID: id,
      topic: args.topic,
      tokens: 2000,
    })
  : "";

const lines = [
  `- ${echo}`,
  `- sum: ${sum}`,
  `- ${weather?.temperature ?? "unknown"} degrees`,
  docs ? `\n## ${args.library}\n\n${docs.slice(0, 1000)}` : `\nnothing about ${args.library}`,
];
await mcp.filesystem.write_file({ path: "environment.md", content: lines.join("\n") });

if (docs.length > 100) {
  const title = docs.split("\n", 1)[0].replace(/^#+ /, "");
  await mcp.memory.add_observations({
    observations: [{ entityName: args.library, contents: [`documented: ${title}`] }],
  });
}
return { present, documented: docs.length };
