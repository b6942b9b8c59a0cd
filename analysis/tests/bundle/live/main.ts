import { count, next } from "./counter.ts";
next();
next();
return count;
