export * from "./other";
