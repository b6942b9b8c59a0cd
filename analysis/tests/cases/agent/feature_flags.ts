const environments = ["staging", "production"] as const;
type Environment = (typeof environments)[number];

interface Flag {
  key: string;
  enabled: boolean;
  rollout?: { percent: number; groups?: string[] };
}

const flags = {} as Record<Environment, Map<string, Flag>>;
await Promise.all(
  environments.map(async (environment) => {
    const answer = await mcp.http.get({ url: `${args.api}/${environment}/flags` });
    flags[environment] = new Map(answer.body.flags.map((flag: Flag) => [flag.key, flag]));
  }),
);

const keys: string[] = await mcp.collections.union({
  lists: environments.map((environment) => [...flags[environment].keys()]),
});

const usage = new Map<string, number>();
for (const key of keys) {
  const found = await mcp.shell.exec({ command: ["git", "grep", "-c", "--", key] });
  const count =
    found.exit_code === 0
      ? found.stdout
          .split("\n")
          .filter(Boolean)
          .reduce((sum: number, line: string) => sum + Number(line.split(":").pop()), 0)
      : 0;
  usage.set(key, count);
}

const describe = (flag?: Flag): string => {
  if (flag === undefined) return "none";
  if (!flag.enabled) return "off";
  return flag.rollout ? `${flag.rollout.percent} % ${flag.rollout.groups?.join("+") ?? "of all"}` : "on";
};

const rows = keys.map((key) => [
  key,
  ...environments.map((environment) => describe(flags[environment].get(key))),
  String(usage.get(key) ?? 0),
]);
await mcp.filesystem.write_file({
  path: "flags.csv",
  content: [["flag", ...environments, "uses"], ...rows].map((row) => row.join(";")).join("\n"),
});

const drift = keys.filter((key) => describe(flags.staging.get(key)) !== describe(flags.production.get(key)));
const dead = keys.filter((key) => usage.get(key) === 0);
for (const key of dead) {
  if (drift.includes(key)) continue;
  const issue = await mcp.github.create_issue({
    owner: args.owner,
    repo: args.repo,
    title: `Remove the flag \`${key}\``,
    body: `Nothing in the code names it. In production it is ${describe(flags.production.get(key))}.`,
  });
  await mcp.slack.post_message({ channel: args.channel, text: `${key}: ${issue.html_url}` });
}
return { flags: keys.length, dead, drift };
