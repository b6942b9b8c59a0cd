import { call } from "./call.ts";
return await call(args.name);
