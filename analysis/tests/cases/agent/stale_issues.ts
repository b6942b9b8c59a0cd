interface Issue {
  number: number;
  title: string;
  updated_at: string;
  labels: { name: string }[];
}

const { owner, repo } = args as { owner: string; repo: string };
const limit: string = await mcp.datetime.add({
  datetime: await mcp.datetime.now({}),
  days: -90,
});

const stale: Issue[] = [];
let page = 1;
while (true) {
  const issues: Issue[] = await mcp.github.list_issues({
    owner,
    repo,
    state: "open",
    sort: "updated",
    direction: "asc",
    page,
    per_page: 100,
  });
  for (const issue of issues) {
    if (issue.updated_at < limit) stale.push(issue);
  }
  const last = issues.at(-1);
  if (issues.length < 100 || !last || last.updated_at >= limit) break;
  page += 1;
}

for (const issue of stale) {
  const labels = issue.labels.map((label) => label.name);
  if (labels.includes("keep")) continue;
  await mcp.github.add_issue_comment({
    owner,
    repo,
    issue_number: issue.number,
    body: `Nothing has happened here since ${issue.updated_at}. Is it still wanted?`,
  });
  await mcp.github.update_issue({ owner, repo, issue_number: issue.number, labels: [...labels, "stale"] });
}

const summary: string = await mcp.string.template({
  template: "{{count}} issues of {{repo}} are older than {{limit}}",
  values: { count: stale.length, repo, limit },
});
await mcp.slack.post_message({ channel: "#triage", text: summary });
return { stale: stale.length, pages: page };
