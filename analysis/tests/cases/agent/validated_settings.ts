interface Settings {
  port: number;
  hosts: string[];
  retries: number;
  tls?: { cert: string; key: string };
}

class SettingsError extends Error {
  readonly field: string;

  constructor(field: string, problem: string) {
    super(`\`${field}\` ${problem}`);
    this.field = field;
  }
}

function assertSettings(value: unknown): asserts value is Settings {
  if (typeof value !== "object" || value === null) throw new SettingsError("settings", "is no object");
  const { port, hosts, retries } = value as Record<string, unknown>;
  if (typeof port !== "number" || port < 1 || port > 65_535) throw new SettingsError("port", "is no port");
  if (!Array.isArray(hosts) || hosts.some((host) => typeof host !== "string")) {
    throw new SettingsError("hosts", "is no list of names");
  }
  if (!Number.isInteger(retries)) throw new SettingsError("retries", "is no whole number");
}

const path: string = args.path ?? "settings.json";
const text: string = await mcp.filesystem.read_text_file({ path });
const settings: unknown = await mcp.json.parse({ data: text });
assertSettings(settings);
const checkedAt: string = await mcp.datetime.now({});

const checks = await Promise.all(
  settings.hosts.map(async (host) => {
    const answer = await mcp.web
      .get({ url: `https://${host}/health` })
      .catch((error: Error) => ({ status: 0, body: error.message }));
    return { host, ok: answer.status === 200 };
  }),
);

if (settings.tls) {
  for (const file of [settings.tls.cert, settings.tls.key]) {
    const info: string = await mcp.filesystem.get_file_info({ path: file });
    if (!/permissions: 600/.test(info)) throw new SettingsError("tls", `${file} can be read by others`);
  }
}

const down = checks.filter((check) => !check.ok).map((check) => check.host);
const normalised: string = await mcp.json.stringify({
  value: { ...settings, hosts: settings.hosts.filter((host) => !down.includes(host)), checkedAt },
  indent: 2,
});
await mcp.filesystem.write_file({ path, content: normalised });
return { hosts: checks.length - down.length, down };
