// One warm Deno that runs programs in Workers without permissions, as a gateway built on Deno would.
// Reads one order a line, answers with one line of JSON.

const BOOTSTRAP = `
const waiting = new Map();
let lastId = 0;
const call = (namespace, action, args) => new Promise((resolve) => {
  waiting.set(++lastId, resolve);
  postMessage({ type: "rpc_call", id: lastId, namespace, action, args });
});
const mcp = new Proxy({}, { get: (_, namespace) => new Proxy({}, {
  get: (_, action) => (args) => call(namespace, action, args),
}) });
const AsyncFunction = (async () => {}).constructor;
self.onmessage = async ({ data }) => {
  if (data.type === "rpc_result") {
    const resolve = waiting.get(data.id);
    waiting.delete(data.id);
    resolve(data.value);
  } else {
    const value = await new AsyncFunction("mcp", "args", data.program)(mcp, data.args);
    postMessage({ type: "execution_complete", ok: true, value });
  }
};
`;
const bootstrap = URL.createObjectURL(new Blob([BOOTSTRAP], { type: "text/javascript" }));
const start = () => new Worker(bootstrap, { type: "module", deno: { permissions: "none" } });

const execute = (worker, program, args) =>
  new Promise((resolve, reject) => {
    worker.onerror = reject;
    worker.onmessage = ({ data }) => {
      if (data.type === "rpc_call") {
        worker.postMessage({ type: "rpc_result", id: data.id, value: data.args });
      } else {
        resolve(data.value);
      }
    };
    worker.postMessage({ type: "execute", program, args });
  });

// A new Worker, the program in, its result out, the Worker gone.
async function once(program, args) {
  const worker = start();
  const value = await execute(worker, program, args);
  worker.terminate();
  return value;
}

async function answer({ order, program, args, millis, side_by_side }) {
  const begun = performance.now();
  const took = () => performance.now() - begun;
  if (order === "fresh") {
    const value = await once(program, args);
    return { value, millis: took() };
  }
  if (order === "flood") {
    let count = 0;
    const lane = async () => {
      while (took() < millis) {
        await once(program, args);
        count += 1;
      }
    };
    await Promise.all(Array.from({ length: side_by_side }, lane));
    return { value: count, millis: took() };
  }
  // A Worker that is already there: only the program itself is timed.
  const worker = start();
  await execute(worker, "return 0", {});
  const started = performance.now();
  const value = await execute(worker, program, args);
  const spent = performance.now() - started;
  worker.terminate();
  return { value, millis: spent };
}

let rest = "";
for await (const text of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + text).split("\n");
  rest = lines.pop();
  for (const line of lines) console.log(JSON.stringify(await answer(JSON.parse(line))));
}
