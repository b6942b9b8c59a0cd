/** Reads. */
import type { Input } from "zod";
import { type Other } from "./nowhere.ts";
const { path } = args as Input & Other;
return await mcp.filesystem.read_file({ path });
