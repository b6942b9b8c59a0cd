// A small MCP server that misbehaves in various ways. Needs only Node.
import { appendFileSync } from "node:fs";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const [log, ...modes] = process.argv.slice(2);
const note = (text) => appendFileSync(log, text + "\n");
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const text = (value) => ({ content: [{ type: "text", text: String(value) }] });
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
note(`start ${process.pid}`);

if (modes.includes("die-at-once")) {
  console.error("the disk is on fire");
  process.exit(3);
}
if (modes.includes("noise")) {
  process.stdout.write("\n\r\nWelcome to the server!\nnpm warn something\n{not json\n");
  send({ method: "notifications/message", params: { level: "info", data: "hello" } });
}
if (modes.includes("not-mcp")) {
  for (;;) { process.stdout.write("y\n".repeat(4096)); await wait(1); }
}

const tools = {
  async echo(args) { return text(args.text); },
  async env() { return text(JSON.stringify(process.env)); },
  async argv() { return text(JSON.stringify(process.argv.slice(3))); },
  async cwd() { return text(process.cwd()); },
  async slow(args) { await wait(args.ms); note(`slow ${args.ms}`); return text("slow"); },
  async never() { return wait(1e9); },
  async hang() { for (;;); },
  async crash(args) { note("crash"); console.error("segmentation\u001b fault"); process.exit(args.code ?? 7); },
  async huge(args) { process.stdout.write("x".repeat(args.size)); return text("huge"); },
  // Answers a call with invalid JSON.
  async garbled(args, id) {
    const result = { cut: '{', deep: `{"content":[],"x":${"[".repeat(2000)}${"]".repeat(2000)}}`, surrogate: '{"content":[{"type":"text","text":"\\ud800"}]}', number: '{"content":[],"structuredContent":{"n":1e999}}' }[args.how];
    process.stdout.write(`{"jsonrpc":"2.0","id":${id},"result":${result}${args.how === "cut" ? "" : "}"}\n`);
    return wait(1e9);
  },
  async fails() { return { ...text("no such thing"), isError: true }; },
  async odd() { return { surprise: 1 }; },
  async ask(args) {
    for (const method of ["sampling/createMessage", "elicitation/create", "roots/list", "nonsense"]) {
      send({ id: `s-${method}`, method, params: { messages: [], maxTokens: 1, message: "password?", requestedSchema: { type: "object", properties: {} } } });
    }
    send({ id: 424242, result: {} });
    return text("asked");
  },
  async orphan(args) {
    // A grandchild in a separate session whose parent has exited.
    spawn("setsid", ["sh", "-c", `sleep 1000 & exec sleep 1001`], { detached: true, stdio: "ignore", env: { ...process.env, ORPHAN: args.mark }, argv0: "setsid" }).unref();
    await wait(200);
    return text("spawned");
  },
};

async function answer({ id, method, params }) {
  if (modes.includes("mute")) return note(`mute ${method}`);
  if (method === "initialize") {
    return send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "strange", version: "1" } } });
  }
  if (method === "server/discover" && modes.includes("dies-of-discover")) {
    console.error("unknown method server/discover");
    process.exit(1);
  }
  if (method === "notifications/cancelled") return note(`cancelled ${params.requestId}`);
  if (method === "tools/list") {
    let listed = Object.keys(tools).map((name) => ({ name, description: name, inputSchema: { type: "object" } }));
    if (modes.includes("twins")) listed.push(listed[0]);
    const result = { tools: listed };
    if (modes.includes("endless")) {
      result.tools = [{ ...listed[0], name: `t${Math.random()}` }];
      result.nextCursor = "more";
    }
    return send({ id, result });
  }
  if (method === "tools/call") {
    const tool = tools[params.name];
    if (!tool) return send({ id, error: { code: -32602, message: `no tool ${params.name}` } });
    note(`call ${params.name}`);
    return send({ id, result: await tool(params.arguments ?? {}, id) });
  }
  if (id !== undefined && method) send({ id, error: { code: -32601, message: `no method ${method}` } });
}

createInterface({ input: process.stdin }).on("line", (line) => answer(JSON.parse(line))).on("close", () => {
  if (!modes.includes("stays")) process.exit(0);
});
if (modes.includes("stays")) setInterval(() => {}, 1000);
