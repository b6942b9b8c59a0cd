import { read as readA, helper } from "./a.ts";
import { read as readB, Date } from "./b.ts";
const read = [readA, readB];
const count = 1;
function nested(helper_2: number, first: number) {
  const readA = 3; // hides the import
  return helper(readA, helper_2, first);
}
const value = { readB, count, helper: 1, nested };
return [await readA(args), value, Date, nested(1, 2), read.length];
