import { later } from "./later.ts";
return await later();
