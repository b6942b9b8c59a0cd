interface Entry {
  at: string;
  level: string;
  message: string;
}

const log: string = await mcp.filesystem.read_text_file({ path: args.log, tail: 5000 });
const matches: { groups: string[] }[] = await mcp.string.match({
  text: log,
  pattern: String.raw`(?m)^(\S+) (ERROR|FATAL) (.*)$`,
  limit: 1000,
});
const entries: Entry[] = matches.map(({ groups: [at, level, message] }) => ({
  at,
  level,
  message: message.replace(/\d+/g, "N"),
}));

const [counts, first, last] = await Promise.all([
  mcp.collections.count_by({ items: entries, by: "message" }) as Promise<Record<string, number>>,
  entries.length > 0 ? mcp.datetime.parse({ text: entries[0].at }) : null,
  entries.length > 0 ? mcp.datetime.parse({ text: entries[entries.length - 1].at }) : null,
]);
const minutes: number =
  first && last ? await mcp.datetime.diff({ start: first.iso, end: last.iso, unit: "minutes" }) : 0;

const known = await mcp.memory.search_nodes({ query: "known error" });
const names = new Set<string>(known.entities.map((entity: { name: string }) => entity.name));
const fresh = Object.entries(counts)
  .sort(([, a], [, b]) => b - a)
  .slice(0, 10)
  .filter(([message]) => !names.has(message));
if (fresh.length === 0) return { errors: entries.length, fresh: 0 };

const rate = minutes > 0 ? entries.length / minutes : entries.length;
const text = [
  `${fresh.length} new kinds of error in ${args.log}, ${rate.toFixed(1)} errors a minute`,
  ...fresh.map(([message, count]) => `${count} times: ${message}`),
].join("\n");
await mcp.slack.post_message({ channel: args.channel, text });
await mcp.memory.create_entities({
  entities: fresh.map(([message, count]) => ({
    name: message,
    entityType: "error",
    observations: [`${count} times in ${args.log}`],
  })),
});
return { errors: entries.length, fresh: fresh.length };
