interface TimelineEvent {
  at: string;
  source: "deploy" | "alert" | "comment";
  text: string;
}
interface Span {
  start: string;
  end: string;
}

const incident: number = args.incident;
const { owner, repo, channel } = args as { owner: string; repo: string; channel: string };

async function spanOf(id: number): Promise<Span> {
  const answer = await mcp.database.query({
    sql: "select started_at, ended_at from incidents where id = ?",
    parameters: [id],
  });
  const row = answer.rows[0];
  if (!row) throw new Error(`there is no incident ${id}`);
  const [start, end] = await Promise.all([
    mcp.datetime.add({ datetime: row.started_at, minutes: -30 }),
    row.ended_at ? mcp.datetime.add({ datetime: row.ended_at, minutes: 30 }) : mcp.datetime.now({}),
  ]);
  return { start, end };
}

async function deploys({ start, end }: Span): Promise<TimelineEvent[]> {
  const log = await mcp.shell.exec({
    command: ["git", "log", "--merges", `--since=${start}`, `--until=${end}`, "--pretty=%cI%x09%s"],
  });
  return log.stdout
    .split("\n")
    .filter(Boolean)
    .map((line: string) => {
      const [at, text] = line.split("\t");
      return { at, source: "deploy", text };
    });
}

async function alerts({ start, end }: Span): Promise<TimelineEvent[]> {
  const events: TimelineEvent[] = [];
  let token: string | null = null;
  for (let page = 0; page < 20; page++) {
    const query = new URLSearchParams({ from: start, to: end, ...(token ? { token } : {}) });
    const answer = await mcp.web.get({ url: `${args.alertsUrl}?${query}` });
    const data = JSON.parse(answer.body) as { items: { at: string; name: string }[]; next: string | null };
    events.push(...data.items.map(({ at, name }) => ({ at, source: "alert" as const, text: name })));
    token = data.next;
    if (!token) break;
  }
  return events;
}

async function comments({ start, end }: Span): Promise<TimelineEvent[]> {
  try {
    const all: { created_at: string; body: string; user: { login: string } }[] =
      await mcp.github.list_issue_comments({ owner, repo, issue_number: incident, since: start });
    return all
      .filter((comment) => comment.created_at <= end)
      .map(({ created_at, body, user }) => ({
        at: created_at,
        source: "comment",
        text: `${user.login}: ${body.split("\n")[0]}`,
      }));
  } catch (error) {
    console.warn(`no comments: ${(error as Error).message}`);
    return [];
  }
}

const span = await spanOf(incident);
const [merged, raised, written] = await Promise.all([deploys(span), alerts(span), comments(span)]);
const events: TimelineEvent[] = await mcp.collections.sort({
  items: [...merged, ...raised, ...written],
  by: "at",
});

const firstAlert = events.find((event) => event.source === "alert");
const suspect = firstAlert
  ? events.filter((event) => event.source === "deploy" && event.at < firstAlert.at).at(-1)
  : undefined;
const delay: number | null =
  suspect && firstAlert
    ? await mcp.datetime.diff({ start: suspect.at, end: firstAlert.at, unit: "minutes" })
    : null;

const body: string = await mcp.string.template({
  template: await mcp.filesystem.read_text_file({ path: args.template ?? "templates/timeline.md" }),
  values: {
    incident,
    start: span.start,
    end: span.end,
    suspect: suspect?.text ?? "none",
    delay: delay === null ? "unknown" : `${delay} minutes`,
    rows: events.map(({ at, source, text }) => `| ${at} | ${source} | ${text} |`).join("\n"),
  },
});
await mcp.filesystem.write_file({ path: `incidents/${incident}.md`, content: body });

if (suspect) {
  await mcp.slack.post_message({
    channel,
    text: `Incident ${incident}: "${suspect.text}" went out ${delay} minutes before the first alert.`,
  });
}
return { events: events.length, suspect: suspect?.text ?? null };
