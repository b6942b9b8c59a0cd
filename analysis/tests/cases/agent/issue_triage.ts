type Label = "bug" | "question" | "feature";

const keywords: [Label, RegExp][] = [
  ["bug", /crash|error|fails|wrong|regression/],
  ["feature", /support|would be nice|please add|allow/],
];

function classify(title: string, body: string | null): Label {
  const text = `${title}\n${body ?? ""}`.toLowerCase();
  for (const [label, pattern] of keywords) {
    if (pattern.test(text)) return label;
  }
  return "question";
}

const { owner, repo } = args as { owner: string; repo: string };
const issues = await mcp.github.list_issues({ owner, repo, labels: "untriaged", per_page: 30 });
const counts: Record<Label, number> = { bug: 0, question: 0, feature: 0 };
const urgent: string[] = [];

for (const { number, title, body, user } of issues) {
  const label = classify(title, body);
  counts[label] += 1;

  const similar = await mcp.memory.search_nodes({ query: title });
  const twin = similar.entities.find((entity: { entityType: string }) => entity.entityType === "issue");
  if (twin) {
    await mcp.github.add_issue_comment({
      owner,
      repo,
      issue_number: number,
      body: `This looks like ${twin.name}.`,
    });
    continue;
  }

  await Promise.all([
    mcp.github.update_issue({ owner, repo, issue_number: number, labels: [label] }),
    mcp.memory.create_entities({
      entities: [{ name: `#${number}`, entityType: "issue", observations: [title, label, `by ${user.login}`] }],
    }),
  ]);
  if (label === "bug" && /data loss|crash|security/i.test(title)) urgent.push(`#${number} ${title}`);
}

if (urgent.length > 0) {
  await mcp.slack.post_message({ channel: "#oncall", text: `Urgent:\n${urgent.join("\n")}` });
}
return counts;
