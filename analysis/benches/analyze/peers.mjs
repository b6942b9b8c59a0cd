// One warm Node with two parsers of TypeScript.
// Reads one request per line and answers with one line of JSON.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.argv[2]}/`);
const swc = require("@swc/core");
const typescript = require("typescript");

// Each returns the number of statements in the text.
const parsers = {
  swc: (text) => swc.parseSync(text, { syntax: "typescript", target: "es2022" }).body.length,
  typescript: (text) =>
    typescript.createSourceFile("program.ts", text, typescript.ScriptTarget.Latest).statements.length,
};
const texts = new Map();

function answer({ order, name, text, times }) {
  if (order === "versions") return { swc: swc.version, typescript: typescript.version, node: process.versions.node };
  if (order === "keep") return { kept: texts.set(name, text).size };
  const [parse, program] = [parsers[order], texts.get(name)];
  const millis = [];
  let statements = 0;
  for (let i = 0; i < times; i++) {
    const begun = performance.now();
    statements = parse(program);
    millis.push(performance.now() - begun);
  }
  return { millis, statements };
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(answer(JSON.parse(line))));
}
