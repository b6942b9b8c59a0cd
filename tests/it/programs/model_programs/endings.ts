//// main is declared and called at the end
// -> {"customers":2,"revenue":50}
interface Order { id: string; customer: string; total: number; paid: boolean }

async function main() {
  const text = await mcp.filesystem.read_text_file({ path: "orders.json" });
  const orders: Order[] = JSON.parse(text);
  const customers = new Set(orders.map((o) => o.customer));
  return { customers: customers.size, revenue: orders.reduce((sum, o) => sum + o.total, 0) };
}

main();
//// await main at the end
// -> 3
async function main(): Promise<number> {
  const raw = await mcp.filesystem.read_text_file({ path: "orders.json" });
  return (await mcp.json.parse({ data: raw })).length;
}
await main();
//// main is called before it is declared
// -> "shop 1.2.0"
main();

async function main() {
  const pkg = JSON.parse(await mcp.filesystem.read_text_file({ path: "package.json" }));
  return `${pkg.name} ${pkg.version}`;
}

type Unused = { a: string };
//// an async function that is called at once
// -> ["A1","A3"]
(async () => {
  const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
  return orders.filter((o: any) => o.paid).map((o: any) => o.id);
})();
//// an async function expression that is called at once and awaited
// -> 42
await (async function run() {
  const sum = await mcp.math.eval({ expression: "40 + 2" });
  return sum;
})();
//// then and console.log
// -> null
// >> shop
async function main() {
  const pkg = await mcp.filesystem.read_text_file({ path: "package.json" });
  return JSON.parse(pkg).name;
}
main().then(console.log);
//// then and catch, both printing
// -> null
// >> done: 2
const run = async () => {
  const { dependencies } = JSON.parse(await mcp.filesystem.read_text_file({ path: "package.json" }));
  return Object.keys(dependencies).length;
};

run()
  .then((count) => console.log("done:", count))
  .catch((error) => console.error("failed:", error.message));
//// then gives a value
// -> 6
mcp.math.eval({ expression: "1 + 2" }).then((n) => n * 2);
//// catch prints what failed
// -> null
// >> failed: Error: `json:parse`: `data` is not JSON
async function main() {
  return await mcp.json.parse({ data: "{ not json" });
}
main().catch((error) => console.error("failed:", error));
//// main with catch gives its value
// -> {"ok":true}
async function main() {
  await mcp.math.eval({ expression: "1" });
  return { ok: true };
}
main().catch(console.error);
//// void main runs to its end
// -> null
// >> total 50
async function main() {
  const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
  console.log("total", orders.reduce((sum: number, o: any) => sum + o.total, 0));
}
void main();
//// main is not awaited and something follows
// -> null
// >> started
// >> finished 3
// ~~ TOOL_PROMISE_DROPPED
async function main() {
  const n = await mcp.math.eval({ expression: "1 + 2" });
  console.log("finished", n);
}

main();
console.log("started");
//// main fails and nothing awaits it
// !! PROGRAM_FAILED 2:13 orders are missing
// ~~ TOOL_PROMISE_DROPPED 5:1
async function main() {
  throw new Error("orders are missing");
}

main();
console.log("started");
//// a final expression
// -> {"a":1,"b":[2]}
const parsed = await mcp.json.parse({ data: '{"a":1,"b":[2]}' });
parsed;
//// a final call without await
// -> {"a":1}
mcp.json.parse({ data: '{"a":1}' })
//// a final call with await
// -> 4
await mcp.math.eval({ expression: "2 * 2" })
//// a final expression on the line of others
// -> "A1,A2,A3"
const t = await mcp.filesystem.read_text_file({ path: "orders.json" }); const o = JSON.parse(t); o.map((x: any) => x.id).join(",")
//// an object in brackets at the end
// -> {"paid":2,"open":1}
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const paid = orders.filter((o: any) => o.paid).length;
({ paid, open: orders.length - paid });
//// an object without brackets at the end
// !! UNSUPPORTED_SYNTAX 4:1 this is a block, not an object; write `return { … }`
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const paid = orders.filter((o: any) => o.paid).length;
const total = orders.length;
{ paid, total }
//// an object with one name at the end
// !! UNSUPPORTED_SYNTAX 2:1 this is a block, not an object
const now = await mcp.math.eval({ expression: "1" });
{ result: now }
//// a template at the end
// -> "3 orders"
const orders = await mcp.json.parse({ data: await mcp.filesystem.read_text_file({ path: "orders.json" }) });
`${orders.length} orders`
//// a list literal at the end
// -> [1,2]
const a = await mcp.math.eval({ expression: "1" });
const b = await mcp.math.eval({ expression: "1 + 1" });
[a, b]
//// a sequence at the end
// -> 2
let n = 1;
n++, n
//// a conditional expression at the end
// -> "many"
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
orders.length > 2 ? "many" : "few";
//// Promise.all at the end
// -> [2,6,24]
Promise.all([2, 3, 4].map((n) => mcp.math.eval({ expression: `factorial(${n})` })));
//// map without Promise.all at the end
// -> [2,6,24]
const numbers = [2, 3, 4];
numbers.map((n) => mcp.math.eval({ expression: `factorial(${n})` }));
//// map with an async function at the end
// -> [{"path":"notes/a.md","open":1},{"path":"notes/b.md","open":1}]
const paths = ["notes/a.md", "notes/b.md"];
paths.map(async (path) => {
  const text = await mcp.filesystem.read_text_file({ path });
  return { path, open: text.split("\n").filter((line) => line.startsWith("- [ ]")).length };
});
//// allSettled at the end reports the reasons
// -> [{"status":"fulfilled","value":1},{"status":"rejected","reason":{"name":"Error","message":"`json:parse`: `data` is not JSON: EOF while parsing an object at line 1 column 1","code":"TOOL_FAILED"}}]
Promise.allSettled(["1", "{"].map((data) => mcp.json.parse({ data })));
//// a value in if and else
// -> "open orders"
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
if (orders.some((o: any) => !o.paid)) {
  "open orders";
} else {
  "all paid";
}
//// main within if
// -> 10
async function main() {
  return await mcp.math.eval({ expression: "5 * 2" });
}
if (!args.skip) {
  await main();
}
//// main within if that is not taken
// -> null
// ~~ the program returned no value
async function main() {
  return await mcp.math.eval({ expression: "5 * 2" });
}
if (args.run) {
  await main();
}
//// main within try
// -> 10
const main = async () => mcp.math.eval({ expression: "5 * 2" });
try {
  await main();
} catch (error) {
  console.error(error);
}
//// a failure of main within try without await is still caught
// -> "caught: `json:parse`: `data` is not JSON: EOF while parsing an object at line 1 column 1"
const main = async () => mcp.json.parse({ data: "{" });
try {
  main();
} catch (error: any) {
  `caught: ${error.message}`;
}
//// main within try and finally
// -> 7
// >> closed
const main = async () => mcp.math.eval({ expression: "3 + 4" });
try {
  await main();
} finally {
  console.log("closed");
}
//// a variable is set in try and in catch
// -> null
// ~~ the program returned no value
let data;
try {
  data = await mcp.json.parse({ data: "{" });
} catch {
  data = [];
}
//// a final assignment
// -> {"n":5}
let result: any;
const n = await mcp.math.eval({ expression: "5" });
result = { n };
//// a program that ends with a declaration
// -> null
// ~~ the program returned no value, so its result is `null`; end it with `return …`
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const unpaid = orders.filter((o: any) => !o.paid);
//// a program that ends with a loop
// -> null
// ~~ the program returned no value
const lines: string[] = [];
for (const path of ["notes/a.md", "notes/b.md"]) {
  lines.push(await mcp.filesystem.read_text_file({ path }));
}
//// a program that ends with a loop that prints
// -> null
// >> # Alpha
for (const path of ["notes/a.md", "notes/b.md"]) {
  const text = await mcp.filesystem.read_text_file({ path });
  console.log(text.split("\n")[0]);
}
//// main has no return
// -> null
// ~~ the program returned no value
async function main() {
  const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
  const total = orders.reduce((sum: number, o: any) => sum + o.total, 0);
  total;
}
main();
//// main is declared and never called
// -> null
// ~~ the program returned no value
async function main() {
  return await mcp.math.eval({ expression: "1" });
}
//// the program is one async arrow function
// -> 9
async () => {
  const nine = await mcp.math.eval({ expression: "3 ^ 2" });
  return nine;
}
//// the last value is a function
// -> null
// >> the value of the last statement is not a valid result: `result` is a function, which JSON cannot represent; call it
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const total = () => orders.reduce((sum: number, o: any) => sum + o.total, 0);
total;
//// forEach with an async function, and then what it filled
// -> {"notes/a.md":"# Alpha","notes/b.md":"# Beta"}
// ~~ TOOL_PROMISE_DROPPED
const titles: Record<string, string> = {};
["notes/a.md", "notes/b.md"].forEach(async (path) => {
  const text = await mcp.filesystem.read_text_file({ path });
  titles[path] = text.split("\n")[0];
});
titles;
//// forEach with an async function, and then a return
// -> []
// ~~ `forEach` does not await its callback
const titles: string[] = [];
["notes/a.md", "notes/b.md"].forEach(async (path) => {
  const text = await mcp.filesystem.read_text_file({ path });
  titles.push(text.split("\n")[0]);
});
return titles;
//// a return within a branch decides
// -> null
// ~~ the program returned no value
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
if (orders.length === 0) return "none";
orders.length;
//// a return within a function does not count
// -> [30,12.5,7.5]
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const totals = orders.map((o: any) => { return o.total; });
totals;
//// a class with a parameter property
// !! UNSUPPORTED_SYNTAX 2:15
class Package {
  constructor(readonly path: string) {}
}
new Package("package.json").path;
//// a class does the work, written so that it runs
// -> {"name":"shop","count":2}
class Package {
  path: string;
  constructor(path: string) { this.path = path; }
  async load() {
    const { name, dependencies } = JSON.parse(await mcp.filesystem.read_text_file({ path: this.path }));
    return { name, count: Object.keys(dependencies).length };
  }
}
new Package("package.json").load();
//// a generator of pages is read to its end
// -> [1,2,3]
async function* pages() {
  for (const n of [1, 2, 3]) yield await mcp.math.eval({ expression: `${n}` });
}
const all: number[] = [];
for await (const page of pages()) all.push(page);
all;
//// comments after the last expression
// -> 3
const n = await mcp.math.eval({ expression: "1 + 2" }); // the sum
n // what the user asked for
/* end */
//// a last line without a semicolon before it
// -> "SHOP"
const pkg = JSON.parse(await mcp.filesystem.read_text_file({ path: "package.json" }))
const upper = pkg.name.toUpperCase()
upper
//// a fully typed program
// -> {"A1":30,"A3":7.5}
type Order = { id: string; total: number; paid: boolean };
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" })) as Order[];
const byId: Record<string, number> = {};
for (const o of orders.filter((o): o is Order & { paid: true } => o.paid)) byId[o.id] = o.total;
byId as Record<string, number>;
//// setTimeout is waited for
// -> 1
// >> later
setTimeout(() => console.log("later"), 5);
//// a delay between calls
// -> [1,2]
const sleep = (ms: number) => new Promise((done) => setTimeout(done, ms));
const out: number[] = [];
for (const n of [1, 2]) {
  out.push(await mcp.math.eval({ expression: `${n}` }));
  await sleep(2);
}
out;
//// the answer is written to a file
// -> "Successfully wrote to report.md"
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const lines = orders.map((o: any) => `- ${o.id}: ${o.total}`);
await mcp.filesystem.write_file({ path: "report.md", content: lines.join("\n") });
//// an error is thrown at the end
// !! PROGRAM_FAILED 3:28 no unpaid order above 100
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const big = orders.filter((o: any) => !o.paid && o.total > 100);
if (!big.length) throw new Error("no unpaid order above 100");
big;
//// an error on the last line has the author's column
// !! PROGRAM_FAILED 1:49
const o = await mcp.json.parse({ data: "{}" }); o.items.length;
//// a label at the end has no value
// -> null
// ~~ the program returned no value
outer: for (const a of [1, 2]) {
  for (const b of [1, 2]) if (a + b === 3) break outer;
}
//// an if within an if
// -> "b"
const n = await mcp.math.eval({ expression: "2" });
if (n > 1) {
  if (n > 5) "a";
  else "b";
} else "c";
//// process.exit does not exist
// !! PROGRAM_FAILED `process` is not available
async function main() { return 1; }
main().then(() => process.exit(0));
//// an exported main function is refused
// !! UNSUPPORTED_SYNTAX
export default async function main() {
  return await mcp.math.eval({ expression: "1" });
}
//// require.main does not exist
// !! PROGRAM_FAILED `require` is not available
async function main() { return 1; }
if (require.main === module) main();
//// the value of a nested program
// -> [{"id":"A2","days":1}]
const result = await (async () => {
  const orders = await mcp.json.parse({ data: await mcp.filesystem.read_text_file({ path: "orders.json" }) });
  return orders.filter((o: any) => !o.paid).map((o: any) => ({ id: o.id, days: 1 }));
})();
result;
//// a chain of thens that ends with a value
// -> ["left-pad","zod"]
mcp.filesystem.read_text_file({ path: "package.json" })
  .then((text) => JSON.parse(text))
  .then(({ dependencies }) => Object.keys(dependencies));
//// a chain of thens, then finally
// -> 3
// >> cleaned up
mcp.json.parse({ data: "[1,2,3]" })
  .then((list: number[]) => list.length)
  .finally(() => console.log("cleaned up"));
//// Promise.race at the end
// -> 1
Promise.race([mcp.math.eval({ expression: "1" }), new Promise((done) => setTimeout(() => done("late"), 2000))]);
//// an object of promises at the end
// -> {"orders":3,"name":"shop"}
const read = (path: string) => mcp.filesystem.read_text_file({ path });
({
  orders: read("orders.json").then((text) => JSON.parse(text).length),
  name: read("package.json").then((text) => JSON.parse(text).name),
});
//// one failed promise of a list fails the program
// !! TOOL_FAILED 1 `data` is not JSON
["1", "{"].map((data) => mcp.json.parse({ data }));
//// the last statement fills a Map
// -> null
// >> the value of the last statement is not a valid result: `result` is a Map
const counts = new Map<string, number>();
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
for (const o of orders) counts.set(o.customer, (counts.get(o.customer) ?? 0) + 1);
counts.set("all", orders.length);
//// the last statement assigns a tool
// -> null
// >> the value of the last statement is not a valid result: `result` is a tool
let read: any;
read = mcp.filesystem.read_text_file;
