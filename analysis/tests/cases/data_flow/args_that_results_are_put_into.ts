const r = await mcp.a.one({});
const same = args;
args.seen = r.id;
await mcp.a.use({ seen: args.seen });
await mcp.a.use({ seen: same.seen });
await mcp.a.use({ other: globalThis.args.other });
