// The locale en-US for numbers, dates and collation. An unknown locale or option throws instead of being ignored.
// Returns what the other scripts of this folder share.
(function () {
  "use strict";
  const { defineProperty } = Object;
  const instead = "write it out with your own code, or call mcp.datetime.format";
  const unknown = (what) => new RangeError(`${what} is not known here, only en-US is; ${instead}`);

  const checkLocales = (locales) => {
    if (locales === undefined) return;
    const wanted = typeof locales === "string" ? [locales] : Array.from(Object(locales));
    if (locales === null || wanted.some((one) => typeof one !== "string")) {
      throw new TypeError("a locale is a text such as \"en-US\"");
    }
    if (wanted.length > 0 && !/^en(?:-us)?$/i.test(wanted[0])) {
      throw unknown(`the locale ${JSON.stringify(wanted[0])}`);
    }
  };
  // Reads the known options, each of which has a list of allowed values; any other option or value throws.
  const readOptions = (options, known) => {
    const read = {};
    if (options === undefined) return read;
    if (options === null || typeof options !== "object") throw new TypeError("the options are not an object");
    for (const name in options) {
      const value = options[name];
      if (value === undefined || name === "localeMatcher") continue;
      const allowed = known[name];
      if (allowed === undefined) throw unknown(`the option ${JSON.stringify(name)}`);
      const fits = typeof allowed === "function" ? allowed(value) : allowed.includes(value);
      if (!fits) throw unknown(`${name}: ${JSON.stringify(value)}`);
      read[name] = value;
    }
    return read;
  };
  const text = (parts) => parts.map((part) => part.value).join("");
  const replace = (prototype, name, value) =>
    defineProperty(prototype, name, { value, writable: true, configurable: true, enumerable: false });

  const Intl = {};
  defineProperty(Intl, Symbol.toStringTag, { value: "Intl", configurable: true });
  const intl = (name, value) => {
    replace(Intl, name, value);
    replace(value, "supportedLocalesOf", function supportedLocalesOf(locales) {
      const wanted = typeof locales === "string" ? [locales] : Array.from(locales ?? []);
      return wanted.filter((one) => /^en(?:-us)?$/i.test(one));
    });
  };
  for (const name of ["DisplayNames", "DurationFormat", "Locale", "RelativeTimeFormat", "Segmenter"]) {
    defineProperty(Intl, name, {
      get() { throw new TypeError(`\`Intl.${name}\` is not available; ${instead}`); },
      configurable: true,
      enumerable: false,
    });
  }
  // Makes a class callable without `new`, as the older classes of `Intl` are.
  const callable = (Class) => {
    const made = { [Class.name]: function (locales, options) { return new Class(locales, options); } }[Class.name];
    Object.defineProperty(made, "prototype", { value: Class.prototype, writable: false });
    replace(Class.prototype, "constructor", made);
    Object.defineProperty(Class.prototype, Symbol.toStringTag, { value: `Intl.${Class.name}`, configurable: true });
    return made;
  };
  return { Intl, callable, checkLocales, instead, intl, readOptions, replace, text, unknown };
})
