/**
 * Sums the prices in a file.
 * @param {string} path - The file.
 */
import { readPrices } from "./lib/prices.ts";
import total, { type Currency } from "./lib/total.ts";

const prices = await readPrices(args.path);
return { total: total(prices), currency: "EUR" as Currency };
