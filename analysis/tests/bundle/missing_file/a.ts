import { b } from "./nowhere";
export const a = b;
