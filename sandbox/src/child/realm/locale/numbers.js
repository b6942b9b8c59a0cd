// Formats numbers and lists for en-US, with English plural rules.
(function (shared) {
  "use strict";
  const { callable, checkLocales, intl, readOptions, replace, text, unknown } = shared;
  const NBSP = "\u00a0";
  // How a currency is written before an amount, and how many digits its amounts have.
  const currencies = {
    __proto__: null,
    USD: ["$", 2], EUR: ["€", 2], GBP: ["£", 2], JPY: ["¥", 0], INR: ["₹", 2], CNY: ["CN¥", 2], KRW: ["₩", 0],
    BRL: ["R$", 2], CAD: ["CA$", 2], AUD: ["A$", 2], NZD: ["NZ$", 2], MXN: ["MX$", 2], ILS: ["₪", 2],
    VND: ["₫", 0], TWD: ["NT$", 2], HKD: ["HK$", 2], PHP: ["₱", 2],
    CHF: [`CHF${NBSP}`, 2], SEK: [`SEK${NBSP}`, 2], NOK: [`NOK${NBSP}`, 2], DKK: [`DKK${NBSP}`, 2],
    PLN: [`PLN${NBSP}`, 2], CZK: [`CZK${NBSP}`, 2], ZAR: [`ZAR${NBSP}`, 2], SGD: [`SGD${NBSP}`, 2],
    THB: [`THB${NBSP}`, 2], TRY: [`TRY${NBSP}`, 2], AED: [`AED${NBSP}`, 2], SAR: [`SAR${NBSP}`, 2],
  };
  const digits = (value) => Number.isInteger(value) && value >= 0 && value <= 100;
  const known = {
    __proto__: null,
    style: ["decimal", "percent", "currency"],
    currency: (value) => typeof value === "string" && currencies[value.toUpperCase()] !== undefined,
    currencyDisplay: ["symbol"],
    currencySign: ["standard"],
    minimumIntegerDigits: (value) => Number.isInteger(value) && value >= 1 && value <= 21,
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
    useGrouping: [true, false, "always", "auto"],
    notation: ["standard"],
    signDisplay: ["auto"],
    numberingSystem: ["latn"],
    roundingMode: ["halfExpand"],
  };
  const settled = (given) => {
    const options = readOptions(given, known);
    const style = options.style ?? "decimal";
    if (style === "currency" && options.currency === undefined) throw new TypeError("style: \"currency\" needs a currency");
    const currency = style === "currency" ? options.currency.toUpperCase() : undefined;
    const usual = style === "currency" ? currencies[currency][1] : 0;
    const most = style === "currency" ? usual : style === "percent" ? 0 : 3;
    let least = options.minimumFractionDigits;
    let limit = options.maximumFractionDigits;
    if (least === undefined) least = limit === undefined ? usual : Math.min(usual, limit);
    if (limit === undefined) limit = Math.max(most, least);
    if (least > limit) throw new RangeError("maximumFractionDigits is less than minimumFractionDigits");
    return {
      style, currency,
      integers: options.minimumIntegerDigits ?? 1,
      least, limit,
      grouping: options.useGrouping ?? "auto",
    };
  };

  // The digits of a number in its shortest decimal form, and how many of them are before the point.
  const decimal = (value) => {
    if (typeof value === "bigint") {
      const all = String(value < 0n ? -value : value);
      return { all, point: all.length };
    }
    const [, whole, fraction = "", exponent = "0"] = /^(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(Math.abs(value)));
    return { all: whole + fraction, point: whole.length + Number(exponent) };
  };
  // Rounds to this many digits after the point, halves away from zero.
  const rounded = ({ all, point }, limit) => {
    if (point < 0) [all, point] = ["0".repeat(-point) + all, 0];
    if (all.length < point) all = all.padEnd(point, "0");
    const kept = point + limit;
    let whole = all.slice(0, kept);
    if (all.length > kept && all[kept] >= "5") {
      whole = String(BigInt(whole || "0") + 1n).padStart(kept, "0");
      if (whole.length > kept) point += 1;
    }
    return [whole.slice(0, point), whole.slice(point)];
  };
  const numberParts = (value, options) => {
    const { style, currency, integers, least, limit, grouping } = options;
    const parts = [];
    const push = (type, written) => parts.push({ type, value: written });
    if (typeof value !== "bigint") value = Number(value);
    const negative = typeof value === "bigint" ? value < 0n : value < 0 || Object.is(value, -0);
    if (negative) push("minusSign", "-");
    if (style === "currency") {
      const [symbol] = currencies[currency];
      push("currency", symbol.endsWith(NBSP) ? symbol.slice(0, -1) : symbol);
      if (symbol.endsWith(NBSP) && Number.isFinite(Number(value))) push("literal", NBSP);
    }
    if (Number.isNaN(value)) {
      push("nan", "NaN");
    } else if (value === Infinity || value === -Infinity) {
      push("infinity", "∞");
    } else {
      const exact = decimal(value);
      if (style === "percent") exact.point += 2;
      let [whole, fraction] = rounded(exact, limit);
      whole = whole.replace(/^0+/, "").padStart(integers, "0");
      const groups = grouping === false ? [whole] : whole.split(/(?=(?:\d{3})+$)/);
      groups.forEach((group, place) => {
        if (place > 0) push("group", ",");
        push("integer", group);
      });
      fraction = fraction.padEnd(least, "0");
      while (fraction.length > least && fraction.endsWith("0")) fraction = fraction.slice(0, -1);
      if (fraction !== "") {
        push("decimal", ".");
        push("fraction", fraction);
      }
    }
    if (style === "percent") push("percentSign", "%");
    return parts;
  };

  class NumberFormat {
    #options;
    #format;
    constructor(locales, options) {
      checkLocales(locales);
      this.#options = settled(options);
      this.#format = (value) => text(numberParts(value, this.#options));
    }
    get format() { return this.#format; }
    formatToParts(value) { return numberParts(value, this.#options); }
    resolvedOptions() {
      const { style, currency, integers, least, limit, grouping } = this.#options;
      return {
        locale: "en-US", numberingSystem: "latn", style, ...(currency && { currency, currencyDisplay: "symbol", currencySign: "standard" }),
        minimumIntegerDigits: integers, minimumFractionDigits: least, maximumFractionDigits: limit,
        useGrouping: grouping, notation: "standard", signDisplay: "auto", roundingMode: "halfExpand",
      };
    }
  }
  intl("NumberFormat", callable(NumberFormat));
  replace(Number.prototype, "toLocaleString", function toLocaleString(locales, options) {
    checkLocales(locales);
    return text(numberParts(Number.prototype.valueOf.call(this), settled(options)));
  });
  replace(BigInt.prototype, "toLocaleString", function toLocaleString(locales, options) {
    checkLocales(locales);
    return text(numberParts(BigInt.prototype.valueOf.call(this), settled(options)));
  });

  class PluralRules {
    #ordinal;
    constructor(locales, options) {
      checkLocales(locales);
      this.#ordinal = readOptions(options, { __proto__: null, type: ["cardinal", "ordinal"] }).type === "ordinal";
    }
    select(value) {
      const number = Math.abs(Number(value));
      if (!this.#ordinal) return number === 1 ? "one" : "other";
      const [last, tens] = [number % 10, number % 100];
      if (last === 1 && tens !== 11) return "one";
      if (last === 2 && tens !== 12) return "two";
      return last === 3 && tens !== 13 ? "few" : "other";
    }
  }
  intl("PluralRules", PluralRules);

  class ListFormat {
    #word;
    constructor(locales, options) {
      checkLocales(locales);
      const { type = "conjunction", style = "long" } = readOptions(options, {
        __proto__: null, type: ["conjunction", "disjunction"], style: ["long"],
      });
      if (style !== "long") throw unknown(`style: ${JSON.stringify(style)}`);
      this.#word = type === "conjunction" ? "and" : "or";
    }
    format(list) {
      const items = Array.from(list, (item) => {
        if (typeof item !== "string") throw new TypeError("a list has texts only");
        return item;
      });
      if (items.length < 3) return items.join(` ${this.#word} `);
      return `${items.slice(0, -1).join(", ")}, ${this.#word} ${items[items.length - 1]}`;
    }
  }
  intl("ListFormat", ListFormat);
})
