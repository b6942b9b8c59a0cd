//// await is missing in a helper's caller
// !! PROMISE_NOT_AWAITED 8:16 `orders` is a promise
async function loadOrders(path: string) {
  const text = await mcp.filesystem.read_text_file({ path });
  return JSON.parse(text);
}

async function main() {
  const orders = loadOrders("orders.json");
  const paid = orders.filter((o: any) => o.paid);
  const total = paid.reduce((sum: number, o: any) => sum + o.total, 0);
  console.log(`Paid orders: ${paid.length}, total ${total}`);
  return { paid: paid.length, total };
}

main();
//// await is missing in a method of a class
// !! PROMISE_NOT_AWAITED 13:24 `stock` is a promise
class Inventory {
  path: string;
  constructor(path: string) {
    this.path = path;
  }

  async load() {
    return JSON.parse(await mcp.filesystem.read_text_file({ path: this.path }));
  }

  async low(): Promise<string[]> {
    const stock = this.load();
    return Object.keys(stock).filter((name) => stock[name].left < stock[name].reorder);
  }
}

const inventory = new Inventory("data/stock.json");
const low = await inventory.low();
return { low };
//// await is missing before Promise.all in the middle
// !! PROMISE_NOT_AWAITED 11:30 `texts` is a promise, which is not iterable
const paths = ["notes/a.md", "notes/b.md", "todo.md"];

const texts = Promise.all(
  paths.map(async (path) => {
    const text = await mcp.filesystem.read_text_file({ path });
    return { path, text };
  }),
);

const summary: Record<string, number> = {};
for (const { path, text } of texts) {
  summary[path] = text.split("\n").length;
}

return summary;
//// a template in a loop has a promise in it
// !! PROMISE_NOT_AWAITED 12:33 `ageOf(person.born)` is a promise, which converts to `[object Promise]`
const people = JSON.parse(await mcp.filesystem.read_text_file({ path: "people.json" }));

const ageOf = async (born: string) =>
  mcp.datetime.diff({ start: born, end: "2026-03-01", unit: "years" });

const lines: string[] = [];
for (const person of people) {
  if (!person.born) {
    lines.push(`${person.name}: unknown`);
    continue;
  }
  lines.push(`${person.name}: ${ageOf(person.born)} years`);
}

return lines.join("\n");
//// an async callback of sort
// !! PROMISE_NOT_AWAITED 8:27 this comparison function returns a promise instead of a number; await the compared values first
const names = ["orders.json", "package.json", "todo.md"];

async function sizeOf(path: string): Promise<number> {
  const text = await mcp.filesystem.read_text_file({ path });
  return text.length;
}

const sorted = names.sort(async (a, b) => {
  const left = await sizeOf(a);
  const right = await sizeOf(b);
  return left - right;
});

return sorted;
//// an async callback of reduce without awaiting what came before
// !! PROMISE_NOT_AWAITED 7:10 `sum` is a promise, which converts to `[object Promise]`; write `await sum`
const files = ["notes/a.md", "notes/b.md"];

const total = await files.reduce(async (sum, path) => {
  const text = await mcp.filesystem.read_text_file({ path });
  const open = text.split("\n").filter((line) => line.startsWith("- [ ]")).length;
  // `sum` is what the call before gave, and that was async
  return sum + open;
}, 0);

return { total };
//// an async callback of flatMap
// !! PROMISE_NOT_AWAITED 3:29 this function returns a promise, which `flatMap` does not flatten
const paths = ["notes/a.md", "notes/b.md"];

const lines = paths.flatMap(async (path) => {
  const text = await mcp.filesystem.read_text_file({ path });
  return text.split("\n").filter((line) => line.trim() !== "");
});

const headings = lines.filter((line: string) => line.startsWith("#"));
const tasks = lines.filter((line: string) => line.startsWith("-"));

return { headings, tasks };
//// forEach with async collects into an object and returns too early
// -> {"counts":{},"total":0}
// ~~ `forEach` does not await its callback
const counts: Record<string, number> = {};
let total = 0;

["logs/app.log", "logs/worker.log"].forEach(async (path) => {
  const text = await mcp.filesystem.read_text_file({ path });
  const errors = text.split("\n").filter((line) => line.includes("ERROR"));
  counts[path] = errors.length;
  total += errors.length;
});

if (total > 10) {
  console.log("many errors");
}

return { counts, total };
//// a Map of results
// !! RESULT_NOT_SERIALIZABLE `result.byRegion` is a Map
const csv = await mcp.filesystem.read_text_file({ path: "data/sales.csv" });
const rows = csv.trim().split("\n").slice(1).map((line) => line.split(","));

const byRegion = new Map<string, number>();
for (const [, region, , units, price] of rows) {
  if (!units) continue;
  const amount = Number(units) * Number(price);
  byRegion.set(region, (byRegion.get(region) ?? 0) + amount);
}

const best = [...byRegion.entries()].reduce((a, b) => (b[1] > a[1] ? b : a));

return {
  best: best[0],
  byRegion,
};
//// a Set at the end of main
// -> null
// >> the value of the last statement is not a valid result: `result` is a Set, which JSON cannot represent; write `[...set]`
async function main() {
  const orders = await mcp.json.parse({
    data: await mcp.filesystem.read_text_file({ path: "orders.json" }),
  });
  const customers = new Set<string>();
  for (const order of orders) {
    if (order.paid) {
      customers.add(order.customer);
    }
  }
  console.log("customers", customers.size);
  return customers;
}

main();
//// an average of an empty group
// !! RESULT_NOT_SERIALIZABLE `result[1].mean` is NaN
interface Group { team: string; ages: number[] }

const people = JSON.parse(await mcp.filesystem.read_text_file({ path: "people.json" }));
const groups: Group[] = ["web", "sales"].map((team) => ({
  team,
  ages: people
    .filter((p: any) => p.team === team && p.born)
    .map((p: any) => 2026 - Number(p.born.slice(0, 4))),
}));

const mean = (numbers: number[]) => numbers.reduce((a, b) => a + b, 0) / numbers.length;

return groups.map(({ team, ages }) => ({ team, count: ages.length, mean: mean(ages) }));
//// a wrong date in a result
// !! RESULT_NOT_SERIALIZABLE `result[2].born` is an invalid Date
const people = JSON.parse(await mcp.filesystem.read_text_file({ path: "people.json" }));

function toDate(text: string | null): Date {
  return new Date(text ?? "unknown");
}

const result = people.map((person: any) => {
  const born = toDate(person.born);
  return {
    name: person.name,
    born,
    team: person.team,
  };
});

return result;
//// a tree with parents
// !! RESULT_NOT_SERIALIZABLE `result.children[0].parent` is an object that contains itself
interface Folder {
  name: string;
  parent: Folder | null;
  children: Folder[];
}

function add(parent: Folder | null, name: string): Folder {
  const folder: Folder = { name, parent, children: [] };
  parent?.children.push(folder);
  return folder;
}

const root = add(null, "project");
for (const line of (await mcp.filesystem.list_directory({ path: "notes" })).split("\n").sort()) {
  add(root, line.replace("[FILE] ", ""));
}

return root;
//// large ids as BigInt
// !! RESULT_NOT_SERIALIZABLE `result[0].id` is the BigInt
const data = '[{"id":"9007199254740993","name":"first"},{"id":"9007199254740995","name":"second"}]';
const records = await mcp.json.parse({ data });

class Record_ {
  id: bigint;
  name: string;

  constructor(raw: { id: string; name: string }) {
    this.id = BigInt(raw.id);
    this.name = raw.name;
  }
}

const typed = records.map((raw: any) => new Record_(raw));
return typed;
//// missing fields are omitted
// -> {"found":[{"name":"Ann","born":"1990-05-01"},{"name":"Cid"}],"total":2}
const people = JSON.parse(await mcp.filesystem.read_text_file({ path: "people.json" }));

const find = (name: string) => people.find((p: any) => p.name === name);

const found = ["Ann", "Dan", "Cid"]
  .map(find)
  .filter((person) => person !== undefined)
  .map((person: any) => ({
    name: person.name,
    born: person.born ?? undefined,
    email: person.email,
  }));

return { found, total: found.length, next: undefined };
//// an object literal at the end without brackets
// !! UNSUPPORTED_SYNTAX 10:1 this is a block, not an object; write `return { … }`
const text = await mcp.filesystem.read_text_file({ path: "todo.md" });
const lines = text.split("\n");
const open = lines.filter((line) => line.startsWith("- [ ]"));
const done = lines.filter((line) => line.startsWith("- [x]"));

// a summary for whoever reads along
console.log(`open: ${open.length}`);
console.log(`done: ${done.length}`);

{ open, done }
//// an object literal with nested fields at the end without brackets
// !! PARSE_ERROR 12:9
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const paid = orders.filter((o: any) => o.paid);
const total = (list: any[]) => list.reduce((sum, o) => sum + o.total, 0);

const report = {
  paid: total(paid),
  all: total(orders),
};

{
  success: true,
  report: report
}
//// node's file system is required
// !! PROGRAM_FAILED 1:12 `require` is not available
const fs = require("fs");
const path = require("path");

async function main() {
  const files = fs.readdirSync("notes");
  const results = [];
  for (const file of files) {
    const content = fs.readFileSync(path.join("notes", file), "utf8");
    results.push({ file, length: content.length });
  }
  return results;
}

main().then((results) => console.log(JSON.stringify(results, null, 2)));
//// node's file system is imported
// !! UNSUPPORTED_SYNTAX 1:26 `node:fs/promises` is a module of another runtime; call a tool
import { readFile } from "node:fs/promises";
import * as path from "node:path";

interface Note {
  name: string;
  title: string;
}

const names = ["a.md", "b.md"];
const notes: Note[] = [];
for (const name of names) {
  const text = await readFile(path.join("notes", name), "utf-8");
  notes.push({ name, title: text.split("\n")[0] });
}

export default notes;
//// an SDK is imported
// !! UNSUPPORTED_SYNTAX 1:24 is a package, and packages are not supported
import { Client } from "@modelcontextprotocol/sdk/client/index.js";

const client = new Client({ name: "example", version: "1.0.0" });

async function run() {
  const result = await client.callTool({
    name: "read_text_file",
    arguments: { path: "todo.md" },
  });
  const text = result.content[0].text;
  const lines = text.split("\n");
  return lines.length;
}

run().then(console.log).catch(console.error);
//// a tool is called through call_tool
// !! TOOL_NOT_FOUND `filesystem:call_tool` is not registered
async function main() {
  const response = await mcp.filesystem.call_tool({
    name: "read_text_file",
    arguments: { path: "orders.json" },
  });
  const orders = JSON.parse(response.content[0].text);
  const paid = orders.filter((order) => order.paid);

  return {
    total: orders.length,
    paid: paid.length,
  };
}

return await main();
//// positional arguments
// !! PROGRAM_FAILED 2:52 takes one object of named arguments
async function readLines(path) {
  const text = await mcp.filesystem.read_text_file(path);
  return text.split("\n").filter((line) => line.length > 0);
}

const a = await readLines("notes/a.md");
const b = await readLines("notes/b.md");
const all = [...a, ...b];

return {
  lines: all.length,
  tasks: all.filter((line) => line.startsWith("- ")).length,
};
//// the text of a result is looked for in content
// !! PROGRAM_FAILED 3:16 cannot read property '0' of undefined
async function read(path) {
  const result = await mcp.filesystem.read_text_file({ path });
  const text = result.content[0].text;
  return text;
}

async function main() {
  const todo = await read("todo.md");
  const lines = todo.split("\n");
  console.log("lines:", lines.length);
  return lines;
}

main();
//// a JSON text is used as its value
// !! PROGRAM_FAILED 4:8 `orders.forEach` is not a function
const orders = await mcp.filesystem.read_text_file({ path: "orders.json" });

const totals: Record<string, number> = {};
orders.forEach((order: any) => {
  if (!totals[order.customer]) {
    totals[order.customer] = 0;
  }
  totals[order.customer] += order.total;
});

return Object.entries(totals).map(([customer, total]) => ({ customer, total }));
//// for in over a list
// -> {"names":["0","1","2"]}
const people = JSON.parse(await mcp.filesystem.read_text_file({ path: "people.json" }));

const names = [];
for (const person in people) {
  // a model that knows Python means `of`
  names.push(person);
}

if (names.length === 0) {
  return { names: [], note: "nobody" };
}

return { names };
//// an error in a nested function has its line
// !! PROGRAM_FAILED 4:22 cannot read property 'Symbol.iterator' of undefined
function total(order: any): number {
  let sum = 0;
  // the file has no items
  for (const item of order.items) {
    sum += item.price * item.quantity;
  }
  return sum;
}

async function main() {
  const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
  const totals = orders.map(total);
  return { totals };
}

main().catch((error) => {
  console.error(error.message);
  throw error;
});
//// an error of one's own class keeps its name and its line
// !! PROGRAM_FAILED 15 ValidationError: order A3 is below the minimum
class ValidationError extends Error {
  field: string;
  constructor(field: string, message: string) {
    super(message);
    this.name = "ValidationError";
    this.field = field;
  }
}

const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));

for (const order of orders) {
  if (order.total < 10) {
    const field = "total";
    throw new ValidationError(field, `order ${order.id} is below the minimum`);
  }
}

return "all orders are fine";
//// a failure is turned into a result
// -> {"success":false,"error":"order A3 is below the minimum","field":"total"}
class ValidationError extends Error {
  readonly field: string;
  constructor(field: string, message: string) {
    super(message);
    this.field = field;
  }
}

function validate(order: { id: string; total: number }): void {
  if (order.total < 10) throw new ValidationError("total", `order ${order.id} is below the minimum`);
}

try {
  const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
  orders.forEach(validate);
  return { success: true };
} catch (error) {
  if (error instanceof ValidationError) {
    return { success: false, error: error.message, field: error.field };
  }
  throw error;
}
//// a promise in a condition of a while
// !! PROMISE_NOT_AWAITED 11:8 `hasMore()` is a promise, which is always true
let page = 0;
const items: number[] = [];

async function hasMore(): Promise<boolean> {
  return (await mcp.math.eval({ expression: `${page} < 3 ? 1 : 0` })) === 1;
}

async function fetchPage(n: number): Promise<number[]> {
  return await mcp.collections.range({ start: n * 2, end: n * 2 + 2 });
}
while (hasMore()) {
  items.push(...(await fetchPage(page)));
  page++;
}

return items;
//// a getter gives a promise
// !! PROMISE_NOT_AWAITED 7:31 `this.manifest` is a promise, which cannot be destructured
class Project {
  get manifest() {
    return mcp.filesystem.read_text_file({ path: "package.json" }).then(JSON.parse);
  }

  async describe() {
    const { name, version } = this.manifest;
    return `${name}@${version}`;
  }
}

const project = new Project();
const description = await project.describe();
console.log(description);
return description;
//// the hash of a file is compared without await
// !! PROMISE_NOT_AWAITED 7:5 `actual` is a promise, which is not equal to any value; write `await actual`
const before = await mcp.filesystem.read_text_file({ path: "config/dev.json" });
const expected = await mcp.crypto.hash({ data: before, algorithm: "sha256" });

const after = await mcp.filesystem.read_text_file({ path: "config/prod.json" });
const actual = mcp.crypto.hash({ data: after, algorithm: "sha256" });

if (actual === expected) {
  return "unchanged";
} else {
  return "changed";
}
//// a write is not awaited and the program returns
// -> {"saved":"late-report.json"}
// ~~ this promise is not awaited
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));

const report = {
  count: orders.length,
  total: orders.reduce((sum: number, o: any) => sum + o.total, 0),
};

function save(path: string, data: unknown) {
  mcp.filesystem.write_file({ path, content: JSON.stringify(data) });
}

save("late-report.json", report);
return { saved: "late-report.json" };
//// a write is not awaited and the program has no return
// -> {"saved":"soon-report.json"}
// ~~ this promise is not awaited
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));

const report = {
  count: orders.length,
  total: orders.reduce((sum: number, o: any) => sum + o.total, 0),
};

const path = "soon-report.json";
mcp.filesystem.write_file({ path, content: JSON.stringify(report) });

console.log("saving", path);
({ saved: path });
//// an unhandled failure of a promise that is not awaited
// !! TOOL_FAILED 5:37 `notes/missing.md`: no such file
// ~~ this promise is not awaited
const files = ["notes/a.md", "notes/missing.md"];
let read = 0;

async function touch(path: string) {
  const text = await mcp.filesystem.read_text_file({ path });
  read += text.length > 0 ? 1 : 0;
}

for (const file of files) {
  touch(file);
}

console.log("started", files.length);
({ started: files.length });
//// main returns nothing and prints nothing
// -> null
// ~~ the program returned no value
async function main() {
  const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
  const byCustomer: Record<string, number> = {};
  for (const { customer, total } of orders) {
    byCustomer[customer] = (byCustomer[customer] ?? 0) + total;
  }
  const result = Object.entries(byCustomer)
    .map(([customer, total]) => ({ customer, total }))
    .sort((a, b) => b.total - a.total);
}

main();
//// one branch of main returns nothing
// -> null
// ~~ the program returned no value
async function main(): Promise<string | undefined> {
  const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
  const unpaid = orders.filter((o: any) => !o.paid);
  if (unpaid.length > 5) {
    return `${unpaid.length} orders are open`;
  }
  if (unpaid.some((o: any) => o.total > 100)) {
    return "a large order is open";
  }
}

await main();
//// the result is in a variable of the outer scope
// -> null
// ~~ the program returned no value
let result: { name: string; files: number } | undefined;

async function run() {
  const pkg = JSON.parse(await mcp.filesystem.read_text_file({ path: "package.json" }));
  const listing = await mcp.filesystem.list_directory({ path: "notes" });
  result = {
    name: pkg.name,
    files: listing.split("\n").length,
  };
}

await run();
//// an enum is refused
// !! UNSUPPORTED_SYNTAX 1:1 `enum` is not supported
enum Level {
  Info = "INFO",
  Warn = "WARN",
  Error = "ERROR",
}

const text = await mcp.filesystem.read_text_file({ path: "logs/app.log" });
const counts: Record<Level, number> = { [Level.Info]: 0, [Level.Warn]: 0, [Level.Error]: 0 };

for (const line of text.trim().split("\n")) {
  const level = line.split(" ")[1] as Level;
  counts[level]++;
}

return counts;
//// a private constructor parameter
// !! UNSUPPORTED_SYNTAX 5:15 parameter properties are not supported
interface Reader {
  read(path: string): Promise<string>;
}
class Report {
  constructor(private reader: Reader, private readonly title: string) {}

  async build(path: string) {
    const text = await this.reader.read(path);
    return `${this.title}: ${text.split("\n").length} lines`;
  }
}

const reader: Reader = { read: (path) => mcp.filesystem.read_text_file({ path }) };
return await new Report(reader, "Todo").build("todo.md");
//// fetch does not exist
// !! PROGRAM_FAILED 7:26 `fetch` is not available
interface User { id: number; name: string }

async function getUsers(): Promise<User[]> {
  const pkg = JSON.parse(await mcp.filesystem.read_text_file({ path: "package.json" }));
  console.log("asking for", pkg.name);
  // the sandbox has no network
  const response = await fetch("https://example.com/users");
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  return response.json();
}

const users = await getUsers();
return users.map((user) => user.name);
//// Buffer does not exist
// !! PROGRAM_FAILED `Buffer` is not available
async function encode(path: string): Promise<string> {
  const text = await mcp.filesystem.read_text_file({ path });
  return Buffer.from(text, "utf-8").toString("base64");
}

async function main() {
  const encoded = await encode("todo.md");
  return {
    encoded,
    length: encoded.length,
  };
}

await main();
//// process.argv does not exist
// !! PROGRAM_FAILED 7:16 `process` is not available
async function countLines(path: string) {
  const text = await mcp.filesystem.read_text_file({ path });
  return text.split("\n").length;
}

async function main() {
  const path = process.argv[2] ?? "todo.md";
  const lines = await countLines(path);
  console.log(`${path}: ${lines}`);
}

main();
//// a shadowed variable is read too early
// !! PROGRAM_FAILED 6:25 total is not initialized
const total = await mcp.math.eval({ expression: "1 + 1" });

async function summarize() {
  const parts: string[] = [];
  // `total` below is another one
  parts.push(`before: ${total}`);
  const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
  const total = orders.length;
  parts.push(`after: ${total}`);
  return parts;
}

return await summarize();
//// a name is misspelled
// !! PROGRAM_FAILED 8:13 unpaidOrders is not defined
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const paid = orders.filter((o: any) => o.paid);

function summary() {
  return {
    paid: paid.length,
    // there is no such name
    unpaid: unpaidOrders.length,
  };
}

return summary();
//// the name of a tool is misspelled
// !! TOOL_NOT_FOUND read_text_file
async function main() {
  const text = await mcp.filesystem.readTextFile({ path: "todo.md" });
  const tasks = text
    .split("\n")
    .filter((line: string) => line.startsWith("- "))
    .map((line: string) => ({
      done: line.includes("[x]"),
      title: line.replace(/^- \[[ x]\] /, ""),
    }));
  return tasks;
}

main();
//// the name of an argument is misspelled
// !! INVALID_ARGUMENTS 6:16 invalid arguments for `filesystem:read_text_file`: missing field `path`
const files = ["orders.json", "package.json"];
const sizes: Record<string, number> = {};

for (const file of files) {
  const text = await mcp.filesystem.read_text_file({
    file_path: file,
  });
  sizes[file] = text.length;
}

const total = Object.values(sizes).reduce((a, b) => a + b, 0);
return { sizes, total };
//// an endless pagination is stopped by the number of calls
// !! TOO_MANY_CALLS more than 1000 tool calls
async function fetchPage(page: number) {
  const items = await mcp.collections.range({ start: page, end: page + 1 });
  return { items, next: page + 1 };
}

let page: number | null = 0;
const all: number[] = [];
while (page !== null) {
  const { items, next } = await fetchPage(page);
  all.push(...items);
  page = next;
}

return all.length;
//// text before the program
// !! UNSUPPORTED_SYNTAX 3:1 this is Markdown; submit only the program
Here is the program that counts the orders:

```typescript
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const paid = orders.filter((o) => o.paid);
const total = paid.reduce((sum, o) => sum + o.total, 0);

return {
  count: orders.length,
  paid: paid.length,
  total,
};
```
//// a fence around the program
// !! UNSUPPORTED_SYNTAX 1:1 this is Markdown; submit only the program
```typescript
async function main() {
  const text = await mcp.filesystem.read_text_file({ path: "orders.json" });
  const orders = JSON.parse(text);
  const paid = orders.filter((o) => o.paid);

  return {
    count: orders.length,
    paid: paid.length,
  };
}

main();
```
//// an old style promise constructor
// -> {"count":3}
function readJson(path) {
  return new Promise(function (resolve, reject) {
    mcp.filesystem
      .read_text_file({ path: path })
      .then(function (text) {
        resolve(JSON.parse(text));
      })
      .catch(reject);
  });
}

readJson("orders.json").then(function (orders) {
  return { count: orders.length };
});
//// a promise constructor's result is used at once
// !! PROMISE_NOT_AWAITED 13:13 `orders` is a promise, which has no `map`
function readJson(path) {
  return new Promise(async (resolve, reject) => {
    try {
      const text = await mcp.filesystem.read_text_file({ path });
      resolve(JSON.parse(text));
    } catch (error) {
      reject(error);
    }
  });
}

const orders = readJson("orders.json");
const ids = orders.map((order) => order.id);
return ids;
//// a callback style helper
// -> null
// >> found 3 orders
// ~~ 2:3 this promise is not awaited
function withOrders(callback) {
  mcp.filesystem.read_text_file({ path: "orders.json" }).then((text) => {
    const orders = JSON.parse(text);
    callback(null, orders);
  }, (error) => callback(error));
}

withOrders((error, orders) => {
  if (error) {
    console.error("failed", error);
    return;
  }
  console.log(`found ${orders.length} orders`);
});
//// var and a closure in a loop
// -> ["orders.json: 161","todo.md: 29"]
var files = ["orders.json", "todo.md"];
var results = [];

for (var i = 0; i < files.length; i++) {
  await (async function (index) {
    var text = await mcp.filesystem.read_text_file({ path: files[index] });
    results.push(files[index] + ": " + text.length);
  })(i);
}

console.log(results.join("\n"));
results;
//// all of one and some of another fail together
// !! TOOL_FAILED `notes/
const sections = await Promise.all([
  mcp.filesystem.read_text_file({ path: "notes/a.md" }),
  mcp.filesystem.read_text_file({ path: "notes/z.md" }),
  mcp.filesystem.read_text_file({ path: "notes/y.md" }),
]);

const [a, z, y] = sections;
const combined = [a, z, y].map((text) => text.trim()).join("\n\n");

await mcp.filesystem.write_file({ path: "combined.md", content: combined });

return { sections: sections.length };
//// Promise.any has no winner
// !! PROGRAM_FAILED 5:11 AggregateError
const mirrors = ["mirror-a.json", "mirror-b.json", "mirror-c.json"];

async function firstThatWorks(paths: string[]): Promise<string> {
  return await Promise.any(
    paths.map((path) => mcp.filesystem.read_text_file({ path })),
  );
}

const text = await firstThatWorks(mirrors);
const data = JSON.parse(text);

return {
  entries: Object.keys(data).length,
};
//// what Promise.any found
// -> {"name":"shop","failed":0}
const mirrors = ["mirror-a.json", "package.json", "mirror-c.json"];
let failed = 0;

async function firstThatWorks(paths: string[]): Promise<string> {
  const reads = paths.map((path) => mcp.filesystem.read_text_file({ path }));
  try {
    return await Promise.any(reads);
  } catch (error) {
    if (error instanceof AggregateError) {
      failed = error.errors.length;
    }
    return "{}";
  } finally {
    await Promise.allSettled(reads);
  }
}

const { name } = JSON.parse(await firstThatWorks(mirrors));
return { name, failed };
//// a proxy and a symbol
// !! RESULT_NOT_SERIALIZABLE `result.kind` is a symbol
const kinds = { order: Symbol("order"), refund: Symbol("refund") };

interface Entry {
  id: string;
  kind: symbol;
}

const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const entries: Entry[] = orders.map((o: any) => ({
  id: o.id,
  kind: o.paid ? kinds.order : kinds.refund,
}));

const first = entries.find((entry) => entry.kind === kinds.order);
return first;
//// a class instance with a Map in it
// !! RESULT_NOT_SERIALIZABLE `result.counts` is a Map
class WordCount {
  counts = new Map<string, number>();
  total = 0;

  add(text: string): void {
    for (const word of text.toLowerCase().match(/[a-z]+/g) ?? []) {
      this.counts.set(word, (this.counts.get(word) ?? 0) + 1);
      this.total += 1;
    }
  }
}

const words = new WordCount();
for (const path of ["notes/a.md", "notes/b.md"]) {
  words.add(await mcp.filesystem.read_text_file({ path }));
}
return words;
//// a class instance with toJSON
// -> {"total":6,"top":[["it",2],["alpha",1]]}
class WordCount {
  #counts = new Map<string, number>();

  add(text: string): this {
    for (const word of text.toLowerCase().match(/[a-z]+/g) ?? []) {
      this.#counts.set(word, (this.#counts.get(word) ?? 0) + 1);
    }
    return this;
  }

  toJSON() {
    const list = [...this.#counts].sort(([a, n], [b, m]) => m - n || a.localeCompare(b));
    return { total: list.reduce((sum, [, n]) => sum + n, 0), top: list.slice(0, 2) };
  }
}

const words = new WordCount();
for (const path of ["notes/a.md", "notes/b.md"]) words.add(await mcp.filesystem.read_text_file({ path }));
return words;
