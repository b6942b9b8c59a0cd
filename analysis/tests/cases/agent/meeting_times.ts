interface Slot {
  time: string;
  score: number;
  local: Record<string, string>;
}

const home: string = args.home ?? "Europe/Berlin";
const zones = args.people as Record<string, string>;
const candidates = ["09:00", "11:00", "14:00", "16:30"];

const here = await mcp.time.get_current_time({ timezone: home });
const day: string = here.datetime.slice(0, 10);

const slots: Slot[] = [];
for (const time of candidates) {
  const local: Record<string, string> = {};
  let score = 0;
  for (const [name, zone] of Object.entries(zones)) {
    const converted = await mcp.time.convert_time({
      source_timezone: home,
      time,
      target_timezone: zone,
    });
    const at: string = converted.target.datetime.slice(11, 16);
    const hour = Number(at.slice(0, 2));
    local[name] = at;
    score += hour >= 9 && hour < 17 ? 2 : hour >= 7 && hour < 20 ? 1 : -5;
  }
  slots.push({ time, score, local });
}

const [best, ...others] = slots.sort((a, b) => b.score - a.score);
if (best.score < 0) {
  return { possible: false, tried: slots.map((slot) => slot.time) };
}

const utc = await mcp.datetime.parse({ text: `${day}T${best.time}:00`, timezone: home });
const invitation: string = await mcp.string.template({
  template: args.template ?? "Let us meet on {{day}} at {{time}} ({{utc}})\n{{people}}",
  values: {
    day,
    time: best.time,
    utc: utc.iso,
    people: Object.entries(best.local)
      .map(([name, at]) => `${name}: ${at}`)
      .join("\n"),
  },
});
const posted = await mcp.slack.post_message({ channel: args.channel, text: invitation });
return { possible: true, posted: posted.ok, others: others.map((slot) => slot.time) };
