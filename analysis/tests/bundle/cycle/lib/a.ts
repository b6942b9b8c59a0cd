export { b as a } from "./b.ts";
