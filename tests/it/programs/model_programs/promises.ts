//// a call as a condition
// !! PROMISE_NOT_AWAITED 1:5 `mcp.filesystem.read_text_file(…)` is a promise
if (mcp.filesystem.read_text_file({ path: "todo.md" })) {
  return "there is work to do";
}
return "nothing to do";
//// an async check as a condition
// !! PROMISE_NOT_AWAITED 6:7 `hasOpenItems(path)` is a promise, which is always true; write `await hasOpenItems(path)`
async function hasOpenItems(path: string) {
  return (await mcp.filesystem.read_text_file({ path })).includes("- [ ]");
}
const open: string[] = [];
for (const path of ["notes/a.md", "notes/b.md"]) {
  if (hasOpenItems(path)) open.push(path);
}
return open;
//// a negated check
// !! PROMISE_NOT_AWAITED 2:6 is a promise, which is always true
const exists = async (path: string) => !!(await mcp.filesystem.read_text_file({ path }).catch(() => ""));
if (!exists("missing.md")) await mcp.filesystem.write_file({ path: "missing.md", content: "" });
return "ok";
//// a loop on a promise
// !! PROMISE_NOT_AWAITED 3:8 `more()` is a promise
let n = 0;
const more = async () => (await mcp.math.eval({ expression: `${n} < 3 ? 1 : 0` })) === 1;
while (more()) n++;
return n;
//// a conditional expression on a promise
// !! PROMISE_NOT_AWAITED 2:8 `valid({ data: args.text })` is a promise
const valid = async (input: any) => { try { await mcp.json.parse(input); return true; } catch { return false; } };
return valid({ data: args.text }) ? "valid" : "broken";
//// a field of a promise
// !! PROMISE_NOT_AWAITED 2:8 `orders` is a promise, which has no `length`; write `(await orders).length`
const orders = mcp.json.parse({ data: await mcp.filesystem.read_text_file({ path: "orders.json" }) });
return orders.length;
//// a field of a call
// !! PROMISE_NOT_AWAITED 1:15 `mcp.json.parse(…)` is a promise, which has no `items`; write `(await mcp.json.parse(…)).items`
const items = mcp.json.parse({ data: '{"items":[{"name":"bolt"},{"name":"nut"}]}' }).items;
return items;
//// await binds to the field
// !! PROMISE_NOT_AWAITED 1:21 is a promise, which has no `items`
const items = await mcp.json.parse({ data: '{"items":[1,2]}' }).items;
return items;
//// await in brackets
// -> [1,2]
const items = (await mcp.json.parse({ data: '{"items":[1,2]}' })).items;
return items;
//// a method of a promise
// !! PROMISE_NOT_AWAITED 2:15 `text` is a promise, which has no `split`; write `(await text).split`
const text = mcp.filesystem.read_text_file({ path: "todo.md" });
const lines = text.split("\n");
return lines.filter((line) => line.includes("- [ ]")).length;
//// an optional field of a promise
// !! PROMISE_NOT_AWAITED 2:8 `config` is a promise, which has no `name`
const config = mcp.json.parse({ data: await mcp.filesystem.read_text_file({ path: "package.json" }) });
return config?.name ?? "unnamed";
//// an item of a promise
// !! PROMISE_NOT_AWAITED 1:15 is a promise, which is not iterable
const first = mcp.json.parse({ data: "[1,2]" })[0];
return first;
//// a promise in a template
// !! PROMISE_NOT_AWAITED 2:24 `total` is a promise, which converts to `[object Promise]`; write `await total`
const total = mcp.math.eval({ expression: "30 + 12.5" });
return `The total is ${total} EUR`;
//// a promise that is added to a text
// !! PROMISE_NOT_AWAITED 1:23 is a promise, which converts to `[object Promise]`
return "The id is " + mcp.crypto.uuid({});
//// a promise in arithmetic
// !! PROMISE_NOT_AWAITED 3:8 `net` is a promise, but an operator needs a value; write `await net`
const net = mcp.math.eval({ expression: "100 / 4" });
const rate = 0.2;
return net * (1 + rate);
//// two promises are added
// !! PROMISE_NOT_AWAITED 3:8 `a` is a promise, which converts to
const a = mcp.math.eval({ expression: "1" });
const b = mcp.math.eval({ expression: "2" });
return a + b;
//// a promise is compared with a number
// !! PROMISE_NOT_AWAITED 2:5 `count` is a promise, which is not equal to any value
const count = mcp.math.eval({ expression: "2 - 2" });
if (count === 0) return "none";
return "some";
//// a promise is larger than a number
// !! PROMISE_NOT_AWAITED 2:5 `count` is a promise, but an operator needs a value
const count = mcp.math.eval({ expression: "5" });
if (count > 3) return "many";
return "few";
//// a switch on a promise
// !! PROMISE_NOT_AWAITED 2:9 `kind()` is a promise, which is not equal to any value
const kind = async () => (await mcp.filesystem.read_text_file({ path: "package.json" })).includes("zod") ? "ts" : "js";
switch (kind()) {
  case "ts": return "TypeScript";
  default: return "JavaScript";
}
//// a substitute for a promise
// !! PROMISE_NOT_AWAITED 1:14 is a promise, so the fallback is never used
const data = mcp.json.parse({ data: "[]" }) ?? [1];
return data;
//// a default for a promise
// !! PROMISE_NOT_AWAITED 2:14 `load()` is a promise, so the fallback is never used
const load = async () => mcp.json.parse({ data: "null" });
const data = load() || { items: [] };
return data;
//// a promise is destructured
// !! PROMISE_NOT_AWAITED 1:27 is a promise, which cannot be destructured
const { name, version } = mcp.json.parse({ data: await mcp.filesystem.read_text_file({ path: "package.json" }) });
return `${name}@${version}`;
//// a list is destructured from a promise
// !! PROMISE_NOT_AWAITED 1:25 is a promise, which cannot be destructured
const [first, second] = mcp.json.parse({ data: "[1,2]" });
return first + second;
//// Promise.all is destructured without await
// !! PROMISE_NOT_AWAITED 1:23 is a promise, which cannot be destructured
const [orders, pkg] = Promise.all([
  mcp.filesystem.read_text_file({ path: "orders.json" }),
  mcp.filesystem.read_text_file({ path: "package.json" }),
]);
return orders.length + pkg.length;
//// a loop over a promise
// !! PROMISE_NOT_AWAITED 2:17 is a promise, which is not iterable
let sum = 0;
for (const n of mcp.json.parse({ data: "[1,2,3]" })) sum += n;
return sum;
//// the result of Promise.all is mapped without await
// !! PROMISE_NOT_AWAITED 2:8 `texts` is a promise, which has no `map`; write `(await texts).map`
const texts = Promise.all(["notes/a.md", "notes/b.md"].map((path) => mcp.filesystem.read_text_file({ path })));
return texts.map((text: string) => text.split("\n")[0]);
//// a promise is spread into a list
// !! PROMISE_NOT_AWAITED 2:20 is a promise, which has nothing to spread
const base = mcp.json.parse({ data: "[1,2]" });
const all = [0, ...base];
return all;
//// a promise is spread into an object
// !! PROMISE_NOT_AWAITED 2:22 `defaults` is a promise, which has nothing to spread; write `await defaults`
const defaults = mcp.json.parse({ data: '{"color":"red"}' });
const options = { ...defaults, size: 2 };
return options;
//// a promise is spread into arguments
// !! PROMISE_NOT_AWAITED 2:20 is a promise, which has nothing to spread
const totals = mcp.json.parse({ data: "[3,9,4]" });
return Math.max(...totals);
//// a promise is given to a tool
// !! PROMISE_NOT_AWAITED 2:42 `text` is a promise, but a tool needs a value; write `await text`
const text = mcp.filesystem.read_text_file({ path: "package.json" });
const pkg = await mcp.json.parse({ data: text });
return pkg.name;
//// a call within a call
// !! PROMISE_NOT_AWAITED 1:37 is a promise, but a tool needs a value
return await mcp.json.parse({ data: mcp.filesystem.read_text_file({ path: "package.json" }) });
//// an async function's promise is given to a tool
// !! PROMISE_NOT_AWAITED 3:64 `summary()` is a promise, but a tool needs a value
const summary = async () =>
  `${(await mcp.filesystem.read_text_file({ path: "orders.json" })).length} characters`;
await mcp.filesystem.write_file({ path: "summary.md", content: summary() });
return "written";
//// a list of promises is given to a tool
// !! PROMISE_NOT_AWAITED 2:40 the items of `numbers` are promises; write `await Promise.all(numbers)`
const numbers = ["1", "2"].map((expression) => mcp.math.eval({ expression }));
return await mcp.math.stats({ numbers: numbers });
//// a promise in JSON
// !! PROMISE_NOT_AWAITED 2:23 `pkg` is a promise, which is `{}` in JSON; write `await pkg`
const pkg = mcp.json.parse({ data: await mcp.filesystem.read_text_file({ path: "package.json" }) });
return JSON.stringify(pkg, null, 2);
//// promises within JSON
// !! PROMISE_NOT_AWAITED 1:33 is a promise, which is `{}` in JSON
return JSON.stringify({ answer: mcp.math.eval({ expression: "6 * 7" }), at: "now" });
//// a text is parsed before it is available
// !! PROMISE_NOT_AWAITED 1:27 `mcp.filesystem.read_text_file(…)` is a promise, but `JSON.parse` needs its value
const orders = JSON.parse(mcp.filesystem.read_text_file({ path: "orders.json" }));
return orders.length;
//// a promise is printed
// !! PROMISE_NOT_AWAITED 2:13 `now` is a promise, which prints as `Promise {}`; write `await now`
const now = mcp.math.eval({ expression: "1" });
console.log(now);
return now;
//// a promise is converted to a text
// !! PROMISE_NOT_AWAITED 1:15 is a promise, but `String` needs its value
return String(mcp.math.eval({ expression: "1" }));
//// a promise is converted to a number
// !! PROMISE_NOT_AWAITED 2:26 `price` is a promise, but `Number` needs its value
const price = mcp.math.eval({ expression: "2.5" });
return Math.round(Number(price) * 4);
//// a promise is parsed as a number
// !! PROMISE_NOT_AWAITED 1:19 `parseFloat` needs its value
return parseFloat(mcp.math.eval({ expression: "2.5" }));
//// the keys of a promise
// !! PROMISE_NOT_AWAITED 1:20 `Object` needs its value
return Object.keys(mcp.json.parse({ data: '{"a":1}' }));
//// is a promise a list
// !! PROMISE_NOT_AWAITED 2:19 `Array.isArray` needs its value
const found = mcp.json.parse({ data: "[]" });
if (Array.isArray(found)) return "list";
return "no list";
//// a promise is converted to a list
// !! PROMISE_NOT_AWAITED 2:19 `Array.from` needs its value
const found = mcp.json.parse({ data: "[1]" });
return Array.from(found);
//// an async function decides what is kept
// !! PROMISE_NOT_AWAITED 2:42 this function returns a promise, which `filter` treats as true
const paths = ["notes/a.md", "notes/b.md", "todo.md"];
const withOpenItems = await paths.filter(async (path) => {
  const text = await mcp.filesystem.read_text_file({ path });
  return text.includes("- [ ]");
});
return withOpenItems;
//// an async function decides whether there is one
// !! PROMISE_NOT_AWAITED 1:47 this function returns a promise, which `some` treats as true
const any = ["notes/a.md", "notes/b.md"].some(async (path) => (await mcp.filesystem.read_text_file({ path })).includes("Beta"));
return any;
//// a call decides what is found
// !! PROMISE_NOT_AWAITED 1:33 this function returns a promise, which `find` treats as true
const broken = ["{", "[]"].find((data) => mcp.json.parse({ data }));
return broken;
//// an async function for every one
// !! PROMISE_NOT_AWAITED 1:26 `every` treats as true
const all = [1, 2].every(async (n) => (await mcp.math.eval({ expression: `${n} * 2` })) > 1);
return all;
//// an async map is used without Promise.all
// !! PROMISE_NOT_AWAITED 5:30 `r` is a promise, which has no `open`
const results = ["notes/a.md", "notes/b.md"].map(async (path) => {
  const text = await mcp.filesystem.read_text_file({ path });
  return { path, open: text.includes("- [ ]") };
});
return results.filter((r) => r.open).map((r) => r.path);
//// an async map is awaited without Promise.all
// !! PROMISE_NOT_AWAITED 2:33 `t` is a promise, which has no `length`
const texts = await ["notes/a.md", "notes/b.md"].map((path) => mcp.filesystem.read_text_file({ path }));
return texts.map((t: string) => t.length);
//// an async map is joined
// !! PROMISE_NOT_AWAITED 2:8 the items of `titles` are promises; write `await Promise.all(titles)`
const titles = ["notes/a.md", "notes/b.md"].map(async (path) => (await mcp.filesystem.read_text_file({ path })).split("\n")[0]);
return titles.join(", ");
//// an async map in a template
// !! PROMISE_NOT_AWAITED 2:19 the items of `titles` are promises
const titles = ["notes/a.md", "notes/b.md"].map((path) => mcp.filesystem.read_text_file({ path }));
return `Titles: ${titles}`;
//// an async map is printed
// !! PROMISE_NOT_AWAITED 2:13 the items of `texts` are promises
const texts = ["notes/a.md"].map((path) => mcp.filesystem.read_text_file({ path }));
console.log(texts);
return texts;
//// an async map in JSON
// !! PROMISE_NOT_AWAITED 2:23 the items of `rows` are promises
const rows = [1, 2].map(async (n) => ({ n, square: await mcp.math.eval({ expression: `${n}^2` }) }));
return JSON.stringify(rows);
//// an item of an async map
// !! PROMISE_NOT_AWAITED 2:8 `rows[0]` is a promise, which has no `square`
const rows = [1, 2].map(async (n) => ({ n, square: await mcp.math.eval({ expression: `${n}^2` }) }));
return rows[0].square;
//// a loop over an async map
// !! PROMISE_NOT_AWAITED 3:32 `row` is a promise, which has no `square`
const rows = [1, 2].map(async (n) => ({ n, square: await mcp.math.eval({ expression: `${n}^2` }) }));
let sum = 0;
for (const row of rows) sum += row.square;
return sum;
//// a list of calls is used as their results
// !! PROMISE_NOT_AWAITED 2:8 `a` is a promise
const [a, b] = [mcp.math.eval({ expression: "1" }), mcp.math.eval({ expression: "2" })];
return a - b;
//// a promise goes through a function
// !! PROMISE_NOT_AWAITED 1:51 `text` is a promise, which has no `split`
const firstLine = (text: any) => { const [line] = text.split("\n"); return line; };
const text = mcp.filesystem.read_text_file({ path: "notes/a.md" });
return firstLine(text);
//// a promise comes out of a function
// !! PROMISE_NOT_AWAITED 3:8 `read("notes/a.md")` is a promise, which has no `trim`
function read(path: string) { return mcp.filesystem.read_text_file({ path }); }

return read("notes/a.md").trim();
//// a promise through an alias of a tool
// !! PROMISE_NOT_AWAITED 3:8 `content` is a promise, which has no `length`
const { read_text_file: read } = mcp.filesystem;
const content = read({ path: "notes/a.md" });
return content.length;
//// a promise of a method
// !! PROMISE_NOT_AWAITED 5:8 is a promise, which has no `length`
class Notes {
  async read(name: string) { return await mcp.filesystem.read_text_file({ path: `notes/${name}.md` }); }
}
const notes = new Notes();
return notes.read("a").length;
//// a promise after then
// !! PROMISE_NOT_AWAITED 2:8 `names` is a promise
const names = mcp.json.parse({ data: '{"b":1,"a":2}' }).then((o) => Object.keys(o).sort());
return names.join(",");
//// a promise after catch
// !! PROMISE_NOT_AWAITED 2:6 `orders` is a promise
const orders = mcp.json.parse({ data: "[]" }).catch(() => null);
if (!orders) return "broken";
return "fine";
//// a call that is not awaited before the return
// -> "saved"
// ~~ 1:1 this promise is not awaited
mcp.filesystem.write_file({ path: "late.md", content: "late" });
return "saved";
//// a call that is not awaited, in a branch
// -> "logged"
// ~~ TOOL_PROMISE_DROPPED 2:12
const debug = true;
if (debug) mcp.crypto.uuid({});
return "logged";
//// a call that a condition makes
// -> 1
// ~~ TOOL_PROMISE_DROPPED 2:1
const verbose = args.verbose ?? true;
verbose && mcp.crypto.uuid({});
return 1;
//// a list of calls that are not awaited
// -> "sent"
// ~~ these promises are not awaited
["a", "b"].map((name) => mcp.filesystem.write_file({ path: `${name}.txt`, content: name }));
return "sent";
//// forEach with a call
// -> "sent"
// ~~ `forEach` does not await its callback
["a", "b"].forEach((name) => mcp.filesystem.write_file({ path: `${name}.txt`, content: name }));
return "sent";
//// a call in a callback is not awaited
// -> 2
// ~~ TOOL_PROMISE_DROPPED
const names = ["x", "y"];
names.forEach((name) => { mcp.crypto.uuid({}); });
return names.length;
//// right: a promise is kept and awaited later
// -> "shop 3"
const pkg = mcp.filesystem.read_text_file({ path: "package.json" });
const orders = mcp.filesystem.read_text_file({ path: "orders.json" });
return `${JSON.parse(await pkg).name} ${JSON.parse(await orders).length}`;
//// right: promises are collected and awaited together
// -> [1,4,9]
const pending: Promise<number>[] = [];
for (const n of [1, 2, 3]) pending.push(mcp.math.eval({ expression: `${n} * ${n}` }));
const squares = await Promise.all(pending);
return squares.map((n) => n);
//// right: one of two calls
// -> 2
const exact = args.exact ?? false;
const n = await (exact ? mcp.math.eval({ expression: "1" }) : mcp.math.eval({ expression: "2" }));
return n + 0;
//// right: a promise that may be undefined
// -> 8
let earlier: Promise<number> | undefined;
if (args.never) earlier = mcp.math.eval({ expression: "1" });
if (earlier) return await earlier;
return await mcp.math.eval({ expression: "8" });
//// right: calls are remembered
// -> [2,2,1]
const cache: Record<string, Promise<number>> = {};
let made = 0;
const of = (expression: string) => (cache[expression] ??= (made++, mcp.math.eval({ expression })));
const [a, b] = await Promise.all([of("1 + 1"), of("1 + 1")]);
return [a, b, made];
//// right: calls are remembered in a Map
// -> 4
const cache = new Map<string, Promise<number>>();
const of = (expression: string) => {
  if (!cache.has(expression)) cache.set(expression, mcp.math.eval({ expression }));
  return cache.get(expression)!;
};
return (await of("2")) + (await of("2"));
//// right: a variable holds the promise first, then the value
// -> "SHOP"
let pkg: any = mcp.filesystem.read_text_file({ path: "package.json" });
pkg = JSON.parse(await pkg);
return pkg.name.toUpperCase();
//// right: a loop's variable is awaited
// -> 3
let page: any = mcp.json.parse({ data: '{"n":1,"next":true}' });
let pages = 0;
while (page) {
  const got = await page;
  pages += got.n;
  page = got.next && pages < 3 ? mcp.json.parse({ data: '{"n":1,"next":true}' }) : null;
}
return pages;
//// right: then and catch
// -> "none"
return mcp.json.parse({ data: "{" }).then((o) => o.name).catch(() => "none");
//// right: an async reduce
// -> 6
const sum = await [1, 2, 3].reduce(async (before, n) => (await before) + (await mcp.math.eval({ expression: `${n}` })), Promise.resolve(0));
return sum;
//// right: an async filter through map
// -> ["todo.md"]
const paths = ["orders.json", "todo.md"];
const keep = await Promise.all(paths.map(async (path) => (await mcp.filesystem.read_text_file({ path })).includes("- [ ]")));
return paths.filter((_, i) => keep[i]);
//// right: for await over promises
// -> [1,2]
const calls = ["1", "2"].map((expression) => mcp.math.eval({ expression }));
const out: number[] = [];
for await (const n of calls) out.push(n);
return out;
//// right: a call is retried
// -> {"tries":3,"value":7}
let tries = 0;
async function retry<T>(work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      tries++;
      if (tries < 3) throw new Error("busy");
      return await work();
    } catch (error) {
      if (tries >= 3) throw error;
    }
  }
}
const value = await retry(() => mcp.math.eval({ expression: "7" }));
return { tries, value };
//// right: a timeout concurrent with a call
// -> 5
const timeout = new Promise<never>((_, reject) => setTimeout(() => reject(new Error("late")), 5000));
return await Promise.race([mcp.math.eval({ expression: "5" }), timeout]);
//// right: two at a time
// -> [1,2,3,4]
const queue = [1, 2, 3, 4];
const out: number[] = [];
const worker = async () => {
  while (queue.length) {
    const n = queue.shift()!;
    out.push(await mcp.math.eval({ expression: `${n}` }));
  }
};
await Promise.all([worker(), worker()]);
return out.sort();
//// right: is it a promise
// -> [true,true]
const p = mcp.math.eval({ expression: "1" });
const seen = [p instanceof Promise, typeof p.then === "function"];
await p;
return seen;
//// right: a function takes both
// -> [1,2]
const value = async (x: any) => await x;
return [await value(mcp.math.eval({ expression: "1" })), await value(2)];
//// right: the promise is compared with nothing
// -> 1
let p: any = mcp.math.eval({ expression: "1" });
if (p !== undefined && p !== null) return await p;
return 0;
//// right: settled results are distinguished
// -> ["1","failed: TOOL_FAILED"]
const settled = await Promise.allSettled(["1", "{"].map((data) => mcp.json.parse({ data })));
return settled.map((s) => (s.status === "fulfilled" ? String(s.value) : `failed: ${s.reason.code}`));
//// right: an object's promises are awaited one by one
// -> {"two":2,"three":3}
const calls = { two: mcp.math.eval({ expression: "2" }), three: mcp.math.eval({ expression: "3" }) };
const out: Record<string, number> = {};
for (const [name, call] of Object.entries(calls)) out[name] = await call;
return out;
//// right: a list's promises are replaced by what they gave
// -> [2,3]
const list: any[] = ["2", "3"].map((expression) => mcp.math.eval({ expression }));
for (let i = 0; i < list.length; i++) list[i] = await list[i];
return list.map((n) => n);
