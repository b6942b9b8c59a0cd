// Shared by all peers: the commands on stdin, and the protocol between a Worker and its host.

// The code in a Worker. The definitions of `send` and `listen` are prepended.
export const INSIDE = `
const waiting = new Map();
let lastId = 0;
const call = (namespace, action, args) => new Promise((resolve) => {
  waiting.set(++lastId, resolve);
  send({ type: "rpc_call", id: lastId, namespace, action, args });
});
const mcp = new Proxy({}, { get: (_, namespace) => new Proxy({}, {
  get: (_, action) => (args) => call(namespace, action, args),
}) });
const AsyncFunction = (async () => {}).constructor;
listen(async (data) => {
  if (data.type === "rpc_result") {
    const resolve = waiting.get(data.id);
    waiting.delete(data.id);
    resolve(data.value);
  } else {
    const value = await new AsyncFunction("mcp", "args", data.program)(mcp, data.args);
    send({ type: "execution_complete", ok: true, value });
  }
});
`;

// The host's side of a Worker: `send` posts a message to it, and its messages are passed to `heard`.
export function outside(send) {
  let done;
  const heard = (data) => {
    if (data.type === "rpc_call") {
      send({ type: "rpc_result", id: data.id, value: data.args });
    } else {
      done(data.value);
    }
  };
  const execute = (program, args) =>
    new Promise((resolve) => {
      done = resolve;
      send({ type: "execute", program, args });
    });
  return { heard, execute };
}

// Prints a name, and then answers each line of `texts`, a command, with one line of JSON. `start` creates a runner for
// one program: `execute` runs it, `end` terminates the runner and may return a promise of its termination.
export async function serve(name, start, texts) {
  // Creates a runner, runs one program, and terminates the runner.
  const once = async (program, args) => {
    const begun = performance.now();
    const runner = start();
    const value = await runner.execute(program, args);
    const gone = runner.end();
    const millis = performance.now() - begun;
    await gone;
    return { value, millis };
  };

  const answer = async ({ order, program, args, millis, side_by_side }) => {
    if (order === "fresh") return await once(program, args);
    const begun = performance.now();
    const took = () => performance.now() - begun;
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
    // Runs the program in an existing runner, so that only the program itself is timed.
    const runner = start();
    await runner.execute("return 0", {});
    const started = took();
    const value = await runner.execute(program, args);
    const spent = took() - started;
    await runner.end();
    return { value, millis: spent };
  };

  console.log(JSON.stringify({ name }));
  let rest = "";
  for await (const text of texts) {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines) console.log(JSON.stringify(await answer(JSON.parse(line))));
  }
}
