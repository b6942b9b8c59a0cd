export * as lib from "./lib.ts";
export { deep as renamed } from "./star.ts";
