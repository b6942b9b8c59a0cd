type Mode = "fast" | "slow";
interface Input { path: string; mode?: Mode; tags: string[]; size: { width: number; height?: number }; other?: boolean }
const { path, mode = "fast", tags, size }: Input = args;
return mcp.shop.send({ path, mode, tags, size });
