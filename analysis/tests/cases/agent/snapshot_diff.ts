interface Change {
  op: string;
  path: string;
}

const snapshot = "snapshots/api.json";
const endpoint: string = args.endpoint;
const ignored: string[] = args.ignored ?? [];

const answer = await mcp.web.get({ url: endpoint, headers: { accept: "application/json" } });
if (answer.status !== 200) return { ok: false, status: answer.status };
const now: unknown = await mcp.json.parse({ data: answer.body });

let before: unknown = null;
try {
  const text: string = await mcp.filesystem.read_text_file({ path: snapshot });
  before = await mcp.json.parse({ data: text });
} catch {
  console.log("no snapshot yet");
}

if (before === null) {
  await mcp.filesystem.write_file({
    path: snapshot,
    content: await mcp.json.stringify({ value: now, indent: 2, sort_keys: true }),
  });
  return { ok: true, first: true };
}

const changes: Change[] = await mcp.json.diff({ before, after: now });
const relevant = changes.filter(({ path }) => !ignored.some((prefix) => path.startsWith(prefix)));
if (relevant.length === 0) return { ok: true, changed: 0 };

const summary = relevant.map(({ op, path }) => `${op} ${path}`).join("\n");
const [posted] = await Promise.all([
  mcp.slack.post_message({ channel: args.channel, text: `${endpoint} changed:\n${summary}` }),
  mcp.json
    .stringify({ value: now, indent: 2, sort_keys: true })
    .then((text: string) => mcp.filesystem.write_file({ path: snapshot, content: text })),
]);
return { ok: true, changed: relevant.length, posted: posted.ok };
