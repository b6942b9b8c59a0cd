// A running Node that executes programs as a gateway built on Node would: each in a separate Worker (`workers`), or
// each in an isolate of `isolated-vm`, which is loaded from the working directory (`isolates`).

const { createRequire } = require("node:module");
const { Worker } = require("node:worker_threads");

// Megabytes of heap, equal to a sealed child's limit on a gateway.
const HEAP = 64;

const INTO = `
const { parentPort } = require("node:worker_threads");
const send = (message) => parentPort.postMessage(message);
const listen = (heard) => parentPort.on("message", heard);
`;

function workers({ INSIDE, outside }) {
  const options = { eval: true, env: {}, resourceLimits: { maxOldGenerationSizeMb: HEAP } };
  const start = () => {
    const worker = new Worker(INTO + INSIDE, options);
    const { heard, execute } = outside((message) => worker.postMessage(message));
    worker.on("message", heard);
    return { execute, end: () => worker.terminate() };
  };
  return { name: `Node ${process.versions.node}`, start };
}

const IN_ISOLATE = `
const copied = { arguments: { copy: true }, result: { promise: true, copy: true } };
const mcp = new Proxy({}, { get: (_, namespace) => new Proxy({}, {
  get: (_, action) => (args) => $0.apply(undefined, [namespace, action, args], copied),
}) });
const AsyncFunction = (async () => {}).constructor;
return new AsyncFunction("mcp", "args", $1)(mcp, $2);
`;

function isolates() {
  const required = createRequire(`${process.cwd()}/`);
  const ivm = required("isolated-vm");
  const echo = async (_namespace, _action, args) => args;
  const copied = { arguments: { copy: true }, result: { promise: true, copy: true } };
  const start = () => {
    const isolate = new ivm.Isolate({ memoryLimit: HEAP });
    const execute = async (program, args) => {
      const context = await isolate.createContext();
      return context.evalClosure(IN_ISOLATE, [new ivm.Reference(echo), program, args], copied);
    };
    return { execute, end: () => isolate.dispose() };
  };
  return { name: `isolated-vm ${required("isolated-vm/package.json").version}`, start };
}

import("./orders.mjs").then(async (orders) => {
  const { name, start } = process.argv[2] === "isolates" ? isolates() : workers(orders);
  process.stdin.setEncoding("utf8");
  await orders.serve(name, start, process.stdin);
});
