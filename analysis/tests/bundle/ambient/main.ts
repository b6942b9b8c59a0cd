import { log } from "./log.ts";
declare const mcp: any;
return await log(await mcp.json.parse({ data: "1" }));
