import "./lib/a.ts";
export const c = 1;
