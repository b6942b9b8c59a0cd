const think = mcp["sequential-thinking"].sequentialthinking;
const question: string = args.question;

interface Found {
  title: string;
  url: string;
  content: string;
}

const found = await mcp.tavily.search({ query: question, max_results: 6 });
const facts = found.results.map(({ title, content }: Found) => `${title}: ${content}`);

let total: number = facts.length + 1;
let number = 0;
let thought = `Question: ${question}`;
let more = true;
const history: string[] = [];

do {
  number += 1;
  const state = await think({
    thought,
    thoughtNumber: number,
    totalThoughts: total,
    nextThoughtNeeded: number < total,
  });
  history.push(thought);
  total = state.totalThoughts;
  more = state.nextThoughtNeeded && number < 20;
  thought = facts[number - 1] ?? "Conclusion: weigh the facts above.";
} while (more);

await think({
  thought: `After ${number} steps: do any two of them contradict each other?`,
  thoughtNumber: number + 1,
  totalThoughts: number + 1,
  nextThoughtNeeded: false,
  isRevision: true,
  revisesThought: 1,
});

const slug: string = await mcp.string.slugify({ text: question });
await mcp.filesystem.write_file({
  path: `answers/${slug}.md`,
  content: [
    `# ${question}`,
    ...history.map((step, index) => `${index + 1}. ${step}`),
    ...found.results.map(({ url }: Found) => `<${url}>`),
  ].join("\n"),
});
return { steps: number };
