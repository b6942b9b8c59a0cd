// Lists everything that a program can reach without a tool, by name: one line a property.
const named = new Map();
const lines = [];
const text = (key) => (typeof key === "symbol" ? `[${key.description}]` : key);
function walk(path, object) {
  if (named.has(object)) return named.get(object);
  named.set(object, path);
  const inner = [];
  let keys;
  try {
    keys = Reflect.ownKeys(object).sort((a, b) => (text(a) < text(b) ? -1 : 1));
  } catch (error) {
    lines.push(`${path} throws ${error.message}`);
    return path;
  }
  for (const key of keys) {
    const place = `${path}.${text(key)}`;
    const found = Object.getOwnPropertyDescriptor(object, key);
    const parts = "value" in found ? { value: found.value } : { get: found.get, set: found.set };
    const fields = [];
    for (const [part, value] of Object.entries(parts)) {
      if (value === undefined && part !== "value") continue;
      const walked = (typeof value === "object" && value !== null) || typeof value === "function";
      const known = walked ? named.get(value) : undefined;
      fields.push(known ? `${part} = ${known}` : `${part} ${typeof value}`);
      if (walked && !known) inner.push([part === "value" ? place : `${place}(${part})`, value]);
    }
    const marks = [found.writable && "w", found.enumerable && "e", found.configurable && "c"];
    lines.push(`${place}: ${fields.join(", ")} ${marks.filter(Boolean).join("")}`.trimEnd());
  }
  const prototype = Object.getPrototypeOf(object);
  if (prototype !== null) inner.push([`${path}.__proto__`, prototype]);
  for (const [place, value] of inner) walk(place, value);
  return path;
}
walk("globalThis", globalThis);
// What has no name, but is reached by syntax.
walk("function*", function* () {});
walk("async function", async function () {});
walk("async function*", async function* () {});
walk("arrow", () => {});
walk("class", class {});
walk("iterator of a list", [][Symbol.iterator]());
walk("iterator of a map", new Map().entries());
walk("iterator of a set", new Set().values());
walk("iterator of a text", ""[Symbol.iterator]());
walk("iterator of matches", "a".matchAll(/a/g));
walk("a match", /(?<a>a)/d.exec("a"));
walk("arguments", (function () { return arguments; })());
walk("template", ((strings) => strings)`a`);
walk("a promise", Promise.resolve());
walk("args", args);
return lines.join("\n");
