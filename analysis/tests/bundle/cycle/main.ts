import { a } from "./lib/a.ts";
return a;
