// Compares texts in the order of Unicode's root collation, for Latin letters, digits and ASCII.
(function (shared) {
  "use strict";
  const { callable, checkLocales, intl, readOptions, replace } = shared;
  // Characters that are neither letters nor digits, in collation order: white space first.
  const signs = "\t\n\v\f\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";
  const primary = new Map(Array.from(signs, (sign, at) => [sign, at + 1]));
  for (let digit = 0; digit < 10; digit++) primary.set(String(digit), 100 + digit);
  for (let letter = 0; letter < 26; letter++) {
    primary.set(String.fromCharCode(97 + letter), 200 + letter);
    primary.set(String.fromCharCode(65 + letter), 200 + letter);
  }
  // The combining accents, in collation order.
  const marks = "\u0301\u0300\u0306\u0302\u030c\u030a\u0308\u030b\u0303\u0307\u0328\u0327\u0304";
  const secondary = new Map(Array.from(marks, (mark, at) => [mark, at + 1]));

  // The sort keys of a text on three levels: letters, accents, case.
  const keysOf = (text, numeric) => {
    const [letters, accents, cases] = [[], [], []];
    const plain = /^[\x20-\x7e]*$/.test(text) ? text : text.normalize("NFD");
    for (let at = 0; at < plain.length; at++) {
      const sign = plain[at];
      const accent = secondary.get(sign);
      if (accent !== undefined && accents.length > 0) {
        accents[accents.length - 1] = accents[accents.length - 1] * 16 + accent;
        continue;
      }
      const letter = primary.get(sign);
      if (letter === undefined) {
        throw new RangeError(
          `the order of ${JSON.stringify(String.fromCodePoint(plain.codePointAt(at)))} is not known here, only that of Latin letters, digits and ASCII; compare with < and >`,
        );
      }
      if (numeric && letter >= 100 && letter < 110) {
        const [run] = /^[0-9]+/.exec(plain.slice(at));
        const value = run.replace(/^0+(?=.)/, "");
        letters.push(100, value.length, ...Array.from(value, Number));
        at += run.length - 1;
        accents.push(0);
        cases.push(0);
        continue;
      }
      letters.push(letter);
      accents.push(0);
      cases.push(sign >= "A" && sign <= "Z" ? 1 : 0);
    }
    return [letters, accents, cases];
  };
  const compareLists = (left, right) => {
    for (let at = 0; at < left.length && at < right.length; at++) {
      if (left[at] !== right[at]) return left[at] < right[at] ? -1 : 1;
    }
    return Math.sign(left.length - right.length);
  };
  const levels = { __proto__: null, base: [0], accent: [0, 1], case: [0, 2], variant: [0, 1, 2] };
  const settled = (given) => {
    const { numeric = false, sensitivity = "variant", caseFirst = "false" } = readOptions(given, {
      __proto__: null, usage: ["sort", "search"], numeric: [true, false], ignorePunctuation: [false],
      sensitivity: Object.keys(levels), caseFirst: ["upper", "lower", "false"],
    });
    return { numeric, sensitivity, caseFirst };
  };
  const compare = (left, right, { numeric, sensitivity, caseFirst }) => {
    const [one, other] = [String(left), String(right)];
    if (one === other) return 0;
    const [first, second] = [keysOf(one, numeric), keysOf(other, numeric)];
    for (const level of levels[sensitivity]) {
      const found = compareLists(first[level], second[level]);
      if (found !== 0) return level === 2 && caseFirst === "upper" ? -found : found;
    }
    return 0;
  };

  class Collator {
    #options;
    #compare;
    constructor(locales, options) {
      checkLocales(locales);
      this.#options = settled(options);
      this.#compare = (left, right) => compare(left, right, this.#options);
    }
    get compare() { return this.#compare; }
    resolvedOptions() {
      return { locale: "en-US", usage: "sort", ignorePunctuation: false, collation: "default", ...this.#options };
    }
  }
  intl("Collator", callable(Collator));
  const usual = settled();
  replace(String.prototype, "localeCompare", function localeCompare(other, locales, options) {
    if (this === undefined || this === null) throw new TypeError("localeCompare is called on null or undefined");
    checkLocales(locales);
    return compare(this, other, options === undefined ? usual : settled(options));
  });
  for (const [name, plain] of [
    ["toLocaleUpperCase", String.prototype.toUpperCase], ["toLocaleLowerCase", String.prototype.toLowerCase],
  ]) {
    replace(String.prototype, name, { [name](locales) {
      checkLocales(locales);
      return plain.call(this);
    } }[name]);
  }
})
