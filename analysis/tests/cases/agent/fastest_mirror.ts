const mirrors: string[] = args.mirrors;
const file: string = args.file;

const timeout = (ms: number) =>
  new Promise<never>((_, reject) => {
    setTimeout(() => reject(new Error(`no answer in ${ms} ms`)), ms);
  });

const probe = async (base: string): Promise<string> => {
  const answer = await Promise.race([mcp.web.get({ url: `${base}/ping` }), timeout(2000)]);
  if (answer.status !== 200) throw new Error(`${base} answers ${answer.status}`);
  return base;
};

let base: string;
try {
  base = await Promise.any(mirrors.map(probe));
} catch (error) {
  console.warn(`no mirror answers: ${(error as AggregateError).errors.length} tried`);
  base = args.fallback;
}

const [body, checksum] = await Promise.all([
  mcp.web.get({ url: `${base}/${file}` }),
  mcp.web.get({ url: `${base}/${file}.sha256` }),
]);
const actual: string = await mcp.crypto.hash({ data: body.body, algorithm: "sha256" });
const expected = checksum.body.trim().split(/\s+/)[0];
if (actual !== expected) {
  throw new Error(`the checksum of ${file} is ${actual}, not ${expected}`);
}
await mcp.filesystem.write_file({ path: `vendor/${file}`, content: body.body });

const lock = `vendor/.${file}.lock`;
await mcp.filesystem.write_file({ path: lock, content: base });
try {
  const unpacked = await mcp.shell.exec({ command: ["tar", "-xzf", `vendor/${file}`, "-C", "vendor"] });
  if (unpacked.exit_code !== 0) throw new Error(`cannot unpack ${file}: ${unpacked.stderr}`);
  const listing: string = await mcp.filesystem.list_directory({ path: "vendor" });
  console.log(listing);
} finally {
  await mcp.filesystem.move_file({ source: lock, destination: `${lock}.done` });
}
return { from: base, sha256: actual };
