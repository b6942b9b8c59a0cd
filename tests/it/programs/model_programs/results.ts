//// a Map is returned
// !! RESULT_NOT_SERIALIZABLE `result` is a Map, which JSON cannot represent; write `Object.fromEntries(map)` or `[...map]`
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const byCustomer = new Map<string, number>();
for (const o of orders) byCustomer.set(o.customer, (byCustomer.get(o.customer) ?? 0) + o.total);
return byCustomer;
//// a Map is returned as an object
// -> {"Ann":37.5,"Ben":12.5}
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const byCustomer = new Map<string, number>();
for (const o of orders) byCustomer.set(o.customer, (byCustomer.get(o.customer) ?? 0) + o.total);
return Object.fromEntries(byCustomer);
//// a Set within a result
// !! RESULT_NOT_SERIALIZABLE `result.customers` is a Set, which JSON cannot represent; write `[...set]`
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
return { count: orders.length, customers: new Set(orders.map((o: any) => o.customer)) };
//// the average of an empty list
// !! RESULT_NOT_SERIALIZABLE `result.stats[1].average` is NaN
const groups = [{ name: "paid", totals: [30, 7.5] }, { name: "refunded", totals: [] as number[] }];
const stats = groups.map(({ name, totals }) => ({
  name,
  average: totals.reduce((a, b) => a + b, 0) / totals.length,
}));
return { stats };
//// the maximum of an empty list
// !! RESULT_NOT_SERIALIZABLE `result.max` is -Infinity
const totals: number[] = (await mcp.json.parse({ data: "[]" }));
return { max: Math.max(...totals) };
//// a BigInt
// !! RESULT_NOT_SERIALIZABLE `result.id` is the BigInt 9007199254740993n, which JSON cannot represent; write `String(n)` or `Number(n)`
const id = BigInt("9007199254740993");
return { id };
//// a function within a result
// !! RESULT_NOT_SERIALIZABLE `result.format` is a function
const unit = "EUR";
return { unit, format: (n: number) => `${n} ${unit}` };
//// an object that holds itself
// !! RESULT_NOT_SERIALIZABLE `result.children[0].parent` is an object that contains itself
const root: any = { name: "root", children: [] };
root.children.push({ name: "leaf", parent: root });
return root;
//// an error is returned from catch
// -> {"name":"Error","message":"`json:parse`: `data` is not JSON: EOF while parsing an object at line 1 column 1","code":"TOOL_FAILED"}
try {
  return await mcp.json.parse({ data: "{" });
} catch (error) {
  return error;
}
//// an error within a result
// -> {"ok":false,"error":{"name":"TypeError","message":"no rows"}}
try {
  throw new TypeError("no rows");
} catch (error) {
  return { ok: false, error };
}
//// a settled list with its reasons
// -> [{"status":"fulfilled","value":2},{"status":"rejected","reason":{"name":"RangeError","message":"too large"}}]
return await Promise.allSettled([
  mcp.math.eval({ expression: "1 + 1" }),
  (async () => { throw new RangeError("too large"); })(),
]);
//// a regular expression
// !! RESULT_NOT_SERIALIZABLE `result.pattern` is a regular expression, which JSON cannot represent; write its `source`
const pattern = /^A\d+$/;
return { pattern, matches: ["A1", "B2"].filter((id) => pattern.test(id)) };
//// bytes
// !! RESULT_NOT_SERIALIZABLE `result` is binary data
return new TextEncoder().encode("hello");
//// bytes as text
// -> "aGVsbG8="
return btoa(String.fromCharCode(...new TextEncoder().encode("hello")));
//// a date
// -> {"due":"2026-01-31T00:00:00.000Z"}
return { due: new Date(Date.UTC(2026, 0, 31)) };
//// an invalid date
// !! RESULT_NOT_SERIALIZABLE `result.due` is an invalid Date
return { due: new Date("soon") };
//// an iterator of keys
// !! RESULT_NOT_SERIALIZABLE `result` is an iterator, which JSON cannot represent; write `[...iterator]`
const seen = new Map([["a", 1]]);
return seen.keys();
//// missing fields are left out, missing items are null
// -> {"found":[1,null]}
const list = [{ n: 1 }, {}] as { n?: number }[];
return { found: list.map((x) => x.n), note: undefined };
//// a minus zero
// -> 0
return Math.round(-0.2);
//// an instance of a class
// -> {"x":1,"y":2}
class Point { x = 1; y = 2; length() { return Math.hypot(this.x, this.y); } }
return new Point();
//// an instance without enumerable fields
// !! RESULT_NOT_SERIALIZABLE `result` is an object of Cart without fields
class Cart { #items: string[] = []; add(item: string) { this.#items.push(item); return this; } }
return new Cart().add("bolt");
//// a search query
// !! RESULT_NOT_SERIALIZABLE `result.query` is an object of URLSearchParams without fields
const query = new URLSearchParams({ q: "bolt" });
return { query };
//// a tool is returned
// !! RESULT_NOT_SERIALIZABLE `result.read` is a tool
const read = mcp.filesystem.read_text_file;
return { read };
//// groups by Object.groupBy
// -> {"Ann":["A1","A3"],"Ben":["A2"]}
const orders = JSON.parse(await mcp.filesystem.read_text_file({ path: "orders.json" }));
const groups = Object.groupBy(orders, (o: any) => o.customer);
return Object.fromEntries(Object.entries(groups).map(([name, list]: any) => [name, list.map((o: any) => o.id)]));
//// a Map is given to a tool
// !! PROGRAM_FAILED 2 `value` in the arguments of mcp.json.stringify is a Map
const counts = new Map([["a", 1]]);
const text = await mcp.json.stringify({ value: counts });
return text;
//// NaN is given to a tool
// !! PROGRAM_FAILED 2 `numbers[1]` in the arguments of mcp.math.stats is NaN
const numbers = ["1", "x"].map(Number);
return await mcp.math.stats({ numbers });
//// a function is given to a tool
// !! PROGRAM_FAILED 1 `value.run` in the arguments of mcp.json.stringify is a function
return await mcp.json.stringify({ value: { run: () => 1 } });
//// a Set is given to a tool
// !! PROGRAM_FAILED `numbers` in the arguments of mcp.math.stats is a Set, which JSON cannot represent; write `[...set]`
const numbers = new Set([1, 2, 2]);
return await mcp.math.stats({ numbers });
//// undefined is omitted from the arguments of a tool
// -> "[null]"
const missing = undefined;
return await mcp.json.stringify({ value: [missing], indent: missing });
//// an error is given to a tool
// -> "{\"error\":{\"name\":\"Error\",\"message\":\"no\"}}"
return await mcp.json.stringify({ value: { error: new Error("no") } });
//// an object of promises is returned
// -> {"two":2,"rest":[3,4]}
const of = (expression: string) => mcp.math.eval({ expression });
return { two: of("2"), rest: [of("3"), of("4")] };
//// a list of lists of promises is returned
// -> [[1,2],[3]]
return [["1", "2"], ["3"]].map((row) => row.map((expression) => mcp.math.eval({ expression })));
//// promises of promises are returned
// -> {"a":{"b":1}}
return { a: (async () => ({ b: mcp.math.eval({ expression: "1" }) }))() };
//// undefined is returned explicitly
// -> null
// ~~ the program returned no value
return undefined;
//// null is returned
// -> null
return null;
//// a symbol as a value
// !! RESULT_NOT_SERIALIZABLE `result.kind` is a symbol
return { kind: Symbol("order") };
//// a deep path
// !! RESULT_NOT_SERIALIZABLE `result.shops[0]["opening hours"].monday` is a Map
return { shops: [{ "opening hours": { monday: new Map() } }] };
