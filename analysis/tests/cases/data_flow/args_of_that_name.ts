// A parameter called `args` is another; so no part is named by the text.
const first = (args) => args.a + "!";
await mcp.a.use({ x: first({ a: args.secret }) });
await mcp.a.use({ x: first({ a: "plain" }) });
