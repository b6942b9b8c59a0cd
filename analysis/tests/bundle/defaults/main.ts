import one from "./one.ts";
import Two from "./2-two.ts";
import three, { four } from "./three.ts";
import { default as five } from "./five.ts";
return [one(), new Two().n, three, four, await five];
