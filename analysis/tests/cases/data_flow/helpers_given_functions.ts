const retry = async (run) => {
  let last;
  for (let at = 0; at < 3; at++) {
    try {
      return await run();
    } catch (error) {
      last = error;
    }
  }
  throw last;
};
const one = await retry(() => mcp.a.one({}));
const two = await retry(() => mcp.a.two({ one }));
await mcp.a.use({ one });
await mcp.a.also({ two });
const timed = async (name, run) => ({ name, value: await run() });
const [left, right] = await Promise.all([
  timed("left", () => mcp.a.left({})),
  timed(args.name, () => mcp.a.right({})),
]);
await mcp.a.use({ left: left.value, name: left.name });
await mcp.a.use({ right: right.value, name: right.name });
const log = [];
const each = (list, run) => {
  for (const item of list) log.push(run(item));
};
each(args.list, (item) => item.name);
each([1, 2], (item) => item);
await mcp.a.log({ log });
