// A running Deno that executes programs in Workers without permissions, as a gateway built on Deno would.

import { INSIDE, outside, serve } from "./orders.mjs";

const INTO = `
const send = (message) => postMessage(message);
const listen = (heard) => { self.onmessage = ({ data }) => heard(data); };
`;
const source = URL.createObjectURL(new Blob([INTO, INSIDE], { type: "text/javascript" }));

function start() {
  const worker = new Worker(source, { type: "module", deno: { permissions: "none" } });
  const { heard, execute } = outside((message) => worker.postMessage(message));
  worker.onmessage = ({ data }) => heard(data);
  return { execute, end: () => worker.terminate() };
}

const texts = Deno.stdin.readable.pipeThrough(new TextDecoderStream());
await serve(`Deno ${Deno.version.deno}`, start, texts);
