const input = args as { names: readonly string[]; n?: number | null };
const id = args.id as string;
return mcp.shop.send({ names: input.names, n: input.n, id });
