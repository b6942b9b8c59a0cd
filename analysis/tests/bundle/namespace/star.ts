export * from "./lib.ts";
