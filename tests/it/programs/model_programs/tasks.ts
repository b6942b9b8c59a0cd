//// summary of a folder of notes
// -> {"files":2,"open":2,"done":0,"titles":["Alpha","Beta"]}
const listing = await mcp.filesystem.list_directory({ path: "notes" });
const names = listing
  .split("\n")
  .filter((line) => line.startsWith("[FILE]"))
  .map((line) => line.replace("[FILE] ", "").trim())
  .sort();

const notes = await Promise.all(
  names.map(async (name) => {
    const text = await mcp.filesystem.read_text_file({ path: `notes/${name}` });
    const lines = text.split("\n");
    return {
      title: lines[0].replace(/^#\s*/, ""),
      open: lines.filter((l) => l.startsWith("- [ ]")).length,
      done: lines.filter((l) => l.startsWith("- [x]")).length,
    };
  }),
);

return {
  files: notes.length,
  open: notes.reduce((n, note) => n + note.open, 0),
  done: notes.reduce((n, note) => n + note.done, 0),
  titles: notes.map((note) => note.title),
};
//// revenue by customer with a typed reduce
// -> [{"customer":"Ann","total":37.5,"share":"75.0%"},{"customer":"Ben","total":12.5,"share":"25.0%"}]
interface Order {
  id: string;
  customer: string;
  total: number;
  paid: boolean;
}

type Totals = Record<Order["customer"], number>;

async function loadOrders(path: string): Promise<Order[]> {
  const raw = await mcp.filesystem.read_text_file({ path });
  const parsed: unknown = JSON.parse(raw);
  if (!Array.isArray(parsed)) {
    throw new TypeError(`${path} does not hold a list`);
  }
  return parsed as Order[];
}

const orders = await loadOrders("orders.json");
const totals = orders.reduce<Totals>((acc, { customer, total }) => {
  acc[customer] = (acc[customer] ?? 0) + total;
  return acc;
}, {});
const sum = Object.values(totals).reduce((a, b) => a + b, 0);

return Object.entries(totals)
  .sort(([, a], [, b]) => b - a)
  .map(([customer, total]) => ({ customer, total, share: `${((total / sum) * 100).toFixed(1)}%` }));
//// a csv is parsed by hand
// -> {"rows":5,"skipped":1,"revenue":{"north":50,"south":99.69999999999999}}
async function main() {
  const csv = await mcp.filesystem.read_text_file({ path: "data/sales.csv" });
  const [header, ...lines] = csv.trim().split("\n");
  const columns = header.split(",");
  const rows = lines.map((line) =>
    Object.fromEntries(line.split(",").map((cell, i) => [columns[i], cell])),
  );

  const revenue: { [region: string]: number } = {};
  let skipped = 0;
  for (const row of rows) {
    const units = parseInt(row.units, 10);
    if (isNaN(units)) {
      skipped++;
      continue;
    }
    revenue[row.region] = (revenue[row.region] || 0) + units * parseFloat(row.price);
  }
  return { rows: rows.length, skipped, revenue };
}

main();
//// errors of all logs by message, with a Map
// -> [["db timeout",2],["job failed",1]]
const files = ["logs/app.log", "logs/worker.log"];
const counts = new Map<string, number>();

for (const path of files) {
  const text = await mcp.filesystem.read_text_file({ path });
  for (const line of text.split("\n")) {
    const match = /^(\S+) (INFO|WARN|ERROR) (.*)$/.exec(line);
    if (!match) continue;
    const [, , level, message] = match;
    if (level !== "ERROR") continue;
    const key = message.startsWith("job") ? "job failed" : message.replace(/ after \d+ms$/, "");
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
}

return [...counts.entries()].sort((a, b) => b[1] - a[1]);
//// the difference of two configurations
// -> {"changed":["/db/host","/db/pool","/debug","/port"],"added":["/region"],"removed":[]}
const [dev, prod] = await Promise.all(
  ["dev", "prod"].map(async (env) =>
    mcp.json.parse({ data: await mcp.filesystem.read_text_file({ path: `config/${env}.json` }) }),
  ),
);

const patch = await mcp.json.diff({ before: dev, after: prod });
const byOp = (op: string) =>
  patch
    .filter((p: any) => p.op === op)
    .map((p: any) => p.path)
    .sort();

return {
  changed: byOp("replace"),
  added: byOp("add"),
  removed: byOp("remove"),
};
//// TODO comments in all sources
// -> [{"file":"index.ts","line":2,"kind":"TODO","text":"handle errors"},{"file":"math.ts","line":2,"kind":"TODO","text":"subtract"},{"file":"math.ts","line":3,"kind":"FIXME","text":"overflow"}]
interface Finding { file: string; line: number; kind: string; text: string }

const found = await mcp.filesystem.search_files({ path: "src", pattern: "**/*.ts" });
const paths = found.split("\n").filter(Boolean).sort();
const findings: Finding[] = [];

for (const path of paths) {
  const source = await mcp.filesystem.read_text_file({ path });
  source.split("\n").forEach((content, index) => {
    const m = content.match(/\/\/\s*(TODO|FIXME):\s*(.+)$/);
    if (m) {
      findings.push({ file: path.split("/").pop()!, line: index + 1, kind: m[1], text: m[2] });
    }
  });
}

findings;
//// a class that collects and reports
// -> "orders: 3, paid: 2, unpaid total: 12.50 EUR"
class OrderReport {
  private orders: any[] = [];
  static currency = "EUR";

  async load(path: string): Promise<this> {
    const text = await mcp.filesystem.read_text_file({ path });
    this.orders = JSON.parse(text);
    return this;
  }

  get paid() {
    return this.orders.filter((o) => o.paid);
  }

  get unpaidTotal(): number {
    return this.orders.filter((o) => !o.paid).reduce((sum, o) => sum + o.total, 0);
  }

  toString() {
    return `orders: ${this.orders.length}, paid: ${this.paid.length}, unpaid total: ${this.unpaidTotal.toFixed(2)} ${OrderReport.currency}`;
  }
}

const report = await new OrderReport().load("orders.json");
return String(report);
//// a retry with growing delays
// -> {"attempts":3,"result":42}
async function withRetry<T>(
  fn: (attempt: number) => Promise<T>,
  { retries = 3, baseDelay = 1 }: { retries?: number; baseDelay?: number } = {},
): Promise<{ attempts: number; result: T }> {
  let lastError: unknown;
  for (let attempt = 1; attempt <= retries; attempt++) {
    try {
      return { attempts: attempt, result: await fn(attempt) };
    } catch (err) {
      lastError = err;
      await new Promise((resolve) => setTimeout(resolve, baseDelay * 2 ** attempt));
    }
  }
  throw lastError;
}

const outcome = await withRetry(async (attempt) => {
  if (attempt < 3) {
    return await mcp.json.parse({ data: "{ broken" });
  }
  return await mcp.math.eval({ expression: "6 * 7" });
});
return outcome;
//// a retry that gives up reports the reason
// !! TOOL_FAILED 14:42 `data` is not JSON
async function retry<T>(fn: () => Promise<T>, times: number): Promise<T> {
  let error: any = null;
  for (let i = 0; i < times; i++) {
    try {
      // the tool is asked again
      return await fn();
    } catch (e) {
      error = e;
    }
  }
  throw error;
}

const value = await retry(() => mcp.json.parse({ data: "{ broken" }), 2);
console.log("value", value);
//// partial failures are listed
// -> {"ok":["orders.json","todo.md"],"failed":["missing.json"]}
const candidates = ["orders.json", "missing.json", "todo.md"];

const results = await Promise.allSettled(
  candidates.map((path) => mcp.filesystem.read_text_file({ path })),
);

const ok: string[] = [];
const failed: string[] = [];
results.forEach((result, i) => {
  if (result.status === "fulfilled") {
    ok.push(candidates[i]);
  } else {
    failed.push(candidates[i]);
  }
});

return { ok, failed };
//// a file that may be missing has a default
// -> {"theme":"dark","pageSize":25,"source":"defaults"}
interface Settings {
  theme: string;
  pageSize: number;
  source?: string;
}

const defaults: Settings = { theme: "dark", pageSize: 25 };

async function readSettings(path: string): Promise<Settings> {
  try {
    const text = await mcp.filesystem.read_text_file({ path });
    return { ...defaults, ...JSON.parse(text), source: path };
  } catch (error) {
    console.warn(`Could not read ${path}: ${(error as Error).message}`);
    return { ...defaults, source: "defaults" };
  }
}

const settings = await readSettings("settings.json");
return settings;
//// an IIFE with early returns
// -> {"status":"low","items":["bolt","gear"]}
(async () => {
  const stock = JSON.parse(await mcp.filesystem.read_text_file({ path: "data/stock.json" }));
  const names = Object.keys(stock);
  if (names.length === 0) {
    return { status: "empty" };
  }

  const low = names.filter((name) => stock[name].left < stock[name].reorder);
  if (low.length === names.length) {
    return { status: "critical" };
  }
  if (low.length > 0) {
    return { status: "low", items: low.sort() };
  }
  return { status: "ok" };
})();
//// a chain of thens over two files
// -> {"paid":2,"deps":2}
mcp.filesystem
  .read_text_file({ path: "orders.json" })
  .then((text) => JSON.parse(text))
  .then((orders) => orders.filter((order) => order.paid))
  .then((paid) =>
    mcp.filesystem.read_text_file({ path: "package.json" }).then((pkg) => ({
      paid: paid.length,
      deps: Object.keys(JSON.parse(pkg).dependencies).length,
    })),
  )
  .catch((error) => {
    console.error("Something went wrong:", error.message);
    return null;
  });
//// a pipeline of small functions
// -> [{"id":"A1","gross":35.7},{"id":"A3","gross":8.92}]
const readJson = async (path: string) =>
  JSON.parse(await mcp.filesystem.read_text_file({ path }));
const isPaid = (o: { paid: boolean }) => o.paid;
const addTax = (rate: number) => (o: { id: string; total: number }) => ({
  id: o.id,
  gross: o.total * (1 + rate),
});
const pipe =
  (...fns: Array<(x: any) => any>) =>
  (input: any) =>
    fns.reduce((value, fn) => fn(value), input);

const transform = pipe(
  (orders: any[]) => orders.filter(isPaid),
  (orders: any[]) => orders.map(addTax(0.19)),
);

const rows = transform(await readJson("orders.json"));
return await Promise.all(
  rows.map(async (row: any) => ({
    ...row,
    gross: await mcp.math.round({ value: row.gross, digits: 2 }),
  })),
);
//// groups by the gateway's tools
// -> {"groups":["Ann","Ben"],"totals":{"Ann":37.5,"Ben":12.5},"top":"Ann"}
const text = await mcp.filesystem.read_text_file({ path: "orders.json" });
const orders = await mcp.json.parse({ data: text });

const grouped = await mcp.collections.group_by({ items: orders, by: "customer" });
const totals = await mcp.collections.sum_by({ items: orders, by: "total", group: "customer" });

const groups = Object.keys(grouped).sort();
let top = "";
let best = -Infinity;
for (const name of groups) {
  if (totals[name] > best) {
    best = totals[name];
    top = name;
  }
}

return { groups, totals, top };
//// statistics of a column
// -> {"count":4,"mean":19.5,"max":40,"label":"4 sales, 19.5 units on average"}
const csv = await mcp.filesystem.read_text_file({ path: "data/sales.csv" });
const units = csv
  .trim()
  .split("\n")
  .slice(1)
  .map((line) => line.split(",")[3])
  .filter((cell) => cell !== "")
  .map(Number);

const stats = await mcp.math.stats({ numbers: units, percentiles: [50, 90] });
const label = await mcp.string.template({
  template: "{{count}} sales, {{mean}} units on average",
  values: { count: stats.count, mean: stats.mean },
});

const { count, mean, max } = stats;
return { count, mean, max, label };
//// ages from dates
// -> [{"name":"Ann","age":35},{"name":"Ben","age":40},{"name":"Cid","age":null}]
type Person = { name: string; born: string | null; team: string };
const people: Person[] = JSON.parse(await mcp.filesystem.read_text_file({ path: "people.json" }));
const today = "2026-03-01";

async function ageOf(person: Person): Promise<number | null> {
  if (person.born === null) return null;
  return await mcp.datetime.diff({ start: person.born, end: today, unit: "years" }).then(Math.floor);
}

const ages = [];
for (const person of people) {
  ages.push({ name: person.name, age: await ageOf(person) });
}
return ages;
//// minutes between log lines
// -> {"first":"2026-03-01T10:00:00.000Z","last":"2026-03-01T10:02:00.000Z","seconds":120,"perMinute":{"10:00":3,"10:01":1,"10:02":1}}
const log = await mcp.filesystem.read_text_file({ path: "logs/app.log" });
const times = log
  .trim()
  .split("\n")
  .map((line) => new Date(line.split(" ")[0]));

const first = new Date(Math.min(...times.map((t) => t.getTime())));
const last = new Date(Math.max(...times.map((t) => t.getTime())));
const perMinute = times.reduce((acc: Record<string, number>, t) => {
  const minute = t.toISOString().slice(11, 16);
  acc[minute] = (acc[minute] ?? 0) + 1;
  return acc;
}, {});

return { first, last, seconds: (last.getTime() - first.getTime()) / 1000, perMinute };
//// an async generator reads in pages
// -> {"pages":3,"items":[1,2,3,4,5]}
async function* paginate(items: number[], size: number) {
  const chunks = await mcp.collections.chunk({ items, size });
  for (const chunk of chunks) {
    yield chunk as number[];
  }
}

async function collect<T>(source: AsyncIterable<T[]>): Promise<{ pages: number; items: T[] }> {
  let pages = 0;
  const items: T[] = [];
  for await (const page of source) {
    pages += 1;
    items.push(...page);
  }
  return { pages, items };
}

const { pages, items } = await collect(paginate([1, 2, 3, 4, 5], 2));
return { pages, items };
//// a generator walks a tree
// -> ["config/dev.json","config/prod.json"]
type Node = { name: string; type: "file" | "directory"; children?: Node[] };

function* walk(nodes: Node[], prefix: string): Generator<string> {
  for (const node of nodes) {
    const path = `${prefix}/${node.name}`;
    if (node.type === "directory") {
      yield* walk(node.children ?? [], path);
    } else {
      yield path;
    }
  }
}

const tree = await mcp.filesystem.directory_tree({ path: "config" });
const nodes: Node[] = typeof tree === "string" ? JSON.parse(tree) : tree;
return [...walk(nodes, "config")].sort();
//// for await over a list of calls
// -> {"total":14,"seen":[1,4,9]}
const inputs = [1, 2, 3];
const seen: number[] = [];
let total = 0;

const calls = inputs.map((n) => mcp.math.eval({ expression: "n * n", variables: { n } }));
for await (const square of calls) {
  seen.push(square);
  total += square;
}

console.log(`Squares: ${seen.join(", ")}`);
return { total, seen };
//// a labelled loop ends both
// -> {"found":"math.ts","checked":2}
const names = ["index.ts", "math.ts"];
let found: string | null = null;
let checked = 0;

search: for (const name of names) {
  const text = await mcp.filesystem.read_text_file({ path: `src/${name}` });
  checked++;
  const lines = text.split("\n");
  for (const line of lines) {
    if (line.includes("FIXME")) {
      found = name;
      break search;
    }
    if (line.startsWith("import")) continue search;
  }
}

return { found, checked };
//// a switch decides on the format
// -> {"orders.json":3,"todo.md":3,"data/sales.csv":5}
async function measure(path: string): Promise<number> {
  const text = await mcp.filesystem.read_text_file({ path });
  switch (path.split(".").pop()) {
    case "json": {
      const data = JSON.parse(text);
      return Array.isArray(data) ? data.length : Object.keys(data).length;
    }
    case "csv":
      return text.trim().split("\n").length - 1;
    case "md":
    case "txt":
      return text.trim().split("\n").length;
    default:
      throw new Error(`unknown format: ${path}`);
  }
}

const sizes: Record<string, number> = {};
for (const path of ["orders.json", "todo.md", "data/sales.csv"]) {
  sizes[path] = await measure(path);
}
return sizes;
//// a report is written and read back
// -> {"written":true,"lines":5,"first":"# Orders"}
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));

const rows = orders.map((o: any) => `| ${o.id} | ${o.customer} | ${o.total.toFixed(2)} |`);
const markdown = ["# Orders", "", ...rows].join("\n");

await mcp.filesystem.write_file({ path: "orders-report.md", content: markdown });
const check = await mcp.filesystem.read_text_file({ path: "orders-report.md" });

if (check !== markdown) {
  throw new Error("the report was not written as it should be");
}

return {
  written: true,
  lines: check.split("\n").length,
  first: check.split("\n")[0],
};
//// two at a time
// -> {"peak":2,"values":[1,4,9,16,25]}
async function mapLimit<T, R>(items: T[], limit: number, fn: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = new Array(items.length);
  let next = 0;
  const worker = async () => {
    while (next < items.length) {
      const index = next++;
      results[index] = await fn(items[index]);
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
  return results;
}

let running = 0;
let peak = 0;
const values = await mapLimit([1, 2, 3, 4, 5], 2, async (n) => {
  running++;
  peak = Math.max(peak, running);
  const value = await mcp.math.eval({ expression: `${n} ^ 2` });
  running--;
  return value;
});

return { peak, values };
//// computed values are memoized
// -> {"values":[2,4,2,4,2],"calls":2}
class Cache {
  #values = new Map<string, Promise<number>>();
  calls = 0;

  get(expression: string): Promise<number> {
    const known = this.#values.get(expression);
    if (known) return known;
    this.calls += 1;
    const value = mcp.math.eval({ expression });
    this.#values.set(expression, value);
    return value;
  }
}

const cache = new Cache();
const values = [];
for (const e of ["1 + 1", "2 + 2", "1 + 1", "2 + 2", "1 + 1"]) {
  values.push(await cache.get(e));
}
return { values, calls: cache.calls };
//// an abstract class and two kinds
// -> [{"kind":"json","entries":3},{"kind":"text","entries":3}]
abstract class Source {
  abstract readonly kind: string;
  path: string;
  constructor(path: string) {
    this.path = path;
  }
  protected read(): Promise<string> {
    return mcp.filesystem.read_text_file({ path: this.path });
  }
  abstract count(): Promise<number>;
}

class JsonSource extends Source {
  readonly kind = "json";
  async count() {
    return JSON.parse(await this.read()).length;
  }
}

class TextSource extends Source {
  readonly kind = "text";
  async count() {
    return (await this.read()).trim().split("\n").length;
  }
}

const sources: Source[] = [new JsonSource("orders.json"), new TextSource("todo.md")];
return await Promise.all(sources.map(async (s) => ({ kind: s.kind, entries: await s.count() })));
//// a validation with a list of problems
// -> {"valid":false,"problems":["row 4: units is empty"]}
type Row = { date: string; region: string; product: string; units: string; price: string };
type Rule = (row: Row) => string | undefined;

const rules: Rule[] = [
  (row) => (/^\d{4}-\d{2}-\d{2}$/.test(row.date) ? undefined : "date is wrong"),
  (row) => (row.units === "" ? "units is empty" : undefined),
  (row) => (Number(row.price) > 0 ? undefined : "price is not positive"),
];

const text: string = await mcp.filesystem.read_text_file({ path: "data/sales.csv" });
const [head, ...body] = text.trim().split(/\r?\n/);
const keys = head.split(",") as (keyof Row)[];
const problems: string[] = [];

body.forEach((line, index) => {
  const cells = line.split(",");
  const row = keys.reduce((acc, key, i) => ({ ...acc, [key]: cells[i] }), {} as Row);
  for (const rule of rules) {
    const problem = rule(row);
    if (problem) problems.push(`row ${index + 1}: ${problem}`);
  }
});

return { valid: problems.length === 0, problems };
//// a queue of work with stages
// -> ["read:orders.json","parse:orders.json","read:package.json","parse:package.json"]
interface Step { name: string; run: () => Promise<unknown> }
const history: string[] = [];
let current = "";

const steps: Step[] = ["orders.json", "package.json"].flatMap((path) => [
  { name: `read:${path}`, run: async () => (current = await mcp.filesystem.read_text_file({ path })) },
  { name: `parse:${path}`, run: async () => JSON.parse(current) },
]);

for (const step of steps) {
  try {
    await step.run();
    history.push(step.name);
  } catch (error) {
    history.push(`${step.name} failed`);
    break;
  }
}

return history;
//// hashes find equal files
// -> {"unique":2,"duplicates":[["a","c"]]}
const contents: Record<string, string> = { a: "same", b: "other", c: "same" };

const hashed = await Promise.all(
  Object.entries(contents).map(async ([name, data]) => {
    const digest = await mcp.crypto.hash({ data, algorithm: "sha256" });
    return { name, digest };
  }),
);

const byDigest = new Map<string, string[]>();
for (const { name, digest } of hashed) {
  const names = byDigest.get(digest);
  if (names) names.push(name);
  else byDigest.set(digest, [name]);
}

return {
  unique: byDigest.size,
  duplicates: [...byDigest.values()].filter((names) => names.length > 1),
};
//// dates in a calendar
// -> ["2026-01-31","2026-02-28","2026-03-31","2026-04-30"]
const start = "2026-01-31";
const dates: string[] = [];

for (let months = 0; months < 4; months++) {
  const moved = await mcp.datetime.add({ datetime: start, months });
  const day = await mcp.datetime.format({ datetime: moved, format: "%Y-%m-%d" });
  dates.push(day);
}

console.log("Billing dates:");
for (const [i, date] of dates.entries()) {
  console.log(`${i + 1}. ${date}`);
}

dates;
//// a table for people
// -> "customer | orders | total\n---------+--------+------\nAnn      |      2 | 37.50\nBen      |      1 | 12.50"
const orders: { customer: string; total: number }[] = JSON.parse(
  await mcp.filesystem.read_text_file({ path: "orders.json" }),
);

const summary = new Map<string, { orders: number; total: number }>();
for (const { customer, total } of orders) {
  const entry = summary.get(customer) ?? { orders: 0, total: 0 };
  entry.orders++;
  entry.total += total;
  summary.set(customer, entry);
}

const lines = ["customer | orders | total", "---------+--------+------"];
for (const [customer, { orders: n, total }] of summary) {
  lines.push(`${customer.padEnd(8)} | ${String(n).padStart(6)} | ${total.toFixed(2).padStart(5)}`);
}
lines.join("\n");
//// a promise is raced against a limit
// -> {"value":10,"late":false}
function timeout(ms: number): Promise<never> {
  return new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
  });
}

async function guarded<T>(work: Promise<T>, ms: number): Promise<{ value: T | null; late: boolean }> {
  try {
    const value = await Promise.race([work, timeout(ms)]);
    return { value, late: false };
  } catch {
    return { value: null, late: true };
  }
}

const answer = await guarded(mcp.math.eval({ expression: "4 + 6" }), 20000);
return answer;
//// cleanup runs in finally
// -> {"steps":["open","work","close"],"error":"Error: `json:parse`: `data` is not JSON: EOF while parsing an object at line 1 column 1"}
const steps: string[] = [];

async function withResource<T>(fn: () => Promise<T>): Promise<T> {
  steps.push("open");
  try {
    return await fn();
  } finally {
    steps.push("close");
  }
}

let error: string | undefined;
try {
  await withResource(async () => {
    steps.push("work");
    await mcp.json.parse({ data: "{" });
    steps.push("never");
  });
} catch (e) {
  error = `${e}`;
}

return { steps, error };
//// destructuring with defaults and rest
// -> {"port":80,"debug":false,"pool":50,"others":["region"],"log":"info"}
const text = await mcp.filesystem.read_text_file({ path: "config/prod.json" });
const {
  port = 8080,
  debug,
  db: { pool = 10 } = {} as any,
  log: { level = "info" } = {} as any,
  ...others
} = JSON.parse(text);

const merged = await mcp.json.merge({ target: { port: 1, debug: true }, patch: { port, debug } });

return {
  port: merged.port,
  debug: merged.debug,
  pool,
  others: Object.keys(others),
  log: level,
};
//// an empty search is reported
// -> {"matches":[],"message":"no order above 1000"}
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const threshold = args.threshold ?? 1000;

const matches = await mcp.collections.filter({
  items: orders,
  by: "total",
  operator: "gt",
  value: threshold,
});

if (matches.length === 0) {
  return { matches, message: `no order above ${threshold}` };
}

const total = matches.reduce((sum: number, o: any) => sum + o.total, 0);
return { matches, message: `${matches.length} orders, ${total} in all` };
//// numbers that are too large for a number
// -> {"sum":"9007199254740995","safe":false}
const ids = await mcp.json.parse({ data: '["9007199254740993", "2"]' });

let sum = 0n;
for (const id of ids) {
  sum += BigInt(id);
}

const safe = sum <= BigInt(Number.MAX_SAFE_INTEGER);
return {
  sum: sum.toString(),
  safe,
};
//// a matrix is transposed
// -> {"turned":[[1,3,5],[2,4,6]],"sums":[9,12]}
const matrix = [
  [1, 2],
  [3, 4],
  [5, 6],
];

const turned = await mcp.collections.zip({ lists: matrix });
const sums: number[] = [];
for (const row of turned) {
  const expression = row.map(String).join(" + ");
  sums.push(await mcp.math.eval({ expression }));
}

return { turned, sums };
//// a small parser of todo lists
// -> {"title":"Todo","tasks":[{"text":"ship","done":false},{"text":"plan","done":true}],"progress":0.5}
type Task = { text: string; done: boolean };

function parseTodo(markdown: string): { title: string; tasks: Task[] } {
  const tasks: Task[] = [];
  let title = "";
  for (const raw of markdown.split("\n")) {
    const line = raw.trim();
    if (line.startsWith("# ")) {
      title = line.slice(2);
    } else if (/^- \[[ x]\]/.test(line)) {
      tasks.push({ text: line.slice(6), done: line[3] === "x" });
    }
  }
  return { title, tasks };
}

const todo = parseTodo(await mcp.filesystem.read_text_file({ path: "todo.md" }));
const progress = todo.tasks.filter((t) => t.done).length / todo.tasks.length;
return { ...todo, progress };
//// an event log with counts by level
// -> null
// >> ERROR: 2
// >> report saved
async function analyzeLogs(file) {
  const content = await mcp.filesystem.read_text_file({ path: file });
  const levels = {};
  for (const line of content.split("\n")) {
    if (!line.trim()) continue;
    const level = line.split(" ")[1];
    levels[level] = (levels[level] || 0) + 1;
  }
  return levels;
}

async function main() {
  const levels = await analyzeLogs("logs/app.log");
  for (const level in levels) {
    console.log(`${level}: ${levels[level]}`);
  }
  await mcp.filesystem.write_file({ path: "levels.json", content: JSON.stringify(levels) });
  console.log("report saved");
}

await main();
//// the keys of tools are read out of a table
// -> {"upper":"SHIP","slug":"ship-the-release","length":16}
const text = "Ship the Release";
const { upper, slugify, length } = mcp.string;

const jobs = {
  upper: async () => (await upper({ text: text.split(" ")[0] })) as string,
  slug: async () => await slugify({ text }),
  length: async () => (await length({ text })).characters,
} as const;

const results: Partial<Record<keyof typeof jobs, unknown>> = {};
for (const key of Object.keys(jobs) as (keyof typeof jobs)[]) {
  results[key] = await jobs[key]();
}

return results;
//// a recursive function counts
// -> {"leaves":6,"depth":3}
type Tree = { [key: string]: Tree | string | number | boolean };

function count(value: unknown): { leaves: number; depth: number } {
  if (typeof value !== "object" || value === null) {
    return { leaves: 1, depth: 0 };
  }
  const parts = Object.values(value).map(count);
  return {
    leaves: parts.reduce((n, p) => n + p.leaves, 0),
    depth: 1 + Math.max(0, ...parts.map((p) => p.depth)),
  };
}

const prod: Tree = JSON.parse(await mcp.filesystem.read_text_file({ path: "config/prod.json" }));
const wrapped = { prod, at: "now" };
const { leaves, depth } = count(wrapped);
return { leaves, depth };
//// an inventory is ordered
// -> {"orders":[{"sku":"bolt","quantity":15},{"sku":"gear","quantity":2}],"cost":{"amount":77.3,"currency":"EUR"}}
interface Stock { left: number; reorder: number }
const prices: Readonly<Record<string, number>> = Object.freeze({ bolt: 2.5, nut: 1, gear: 19.9 });

const stock = JSON.parse(await mcp.filesystem.read_text_file({ path: "data/stock.json" })) as Record<string, Stock>;

const orders = Object.entries(stock)
  .filter(([, { left, reorder }]) => left < reorder)
  .map(([sku, { left, reorder }]) => ({ sku, quantity: reorder - left }));

const expression = orders.map(({ sku, quantity }) => `${quantity} * ${prices[sku]}`).join(" + ");
const amount = orders.length ? await mcp.math.eval({ expression }) : 0;

return {
  orders,
  cost: { amount: await mcp.math.round({ value: amount, digits: 2 }), currency: "EUR" },
};
