import { a } from "./a.ts";
return a;
