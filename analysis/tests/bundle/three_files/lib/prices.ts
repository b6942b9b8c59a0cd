// What a file says of prices.
import { parse } from "./parse";

export async function readPrices(path: string): Promise<number[]> {
  return parse(await mcp.filesystem.read_text_file({ path }));
}
