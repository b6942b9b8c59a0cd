// Serializes the values that a program passes out. A value that JSON cannot represent is refused with its path, not dropped.
// Runs once in a sealed child, before any program is known. `labels` has the names of opaque objects.
(function (labels) {
  "use strict";
  const { getOwnPropertyDescriptor, getPrototypeOf, keys, prototype: plain, defineProperty } = Object;
  const { apply } = Reflect;
  const { stringify } = JSON;
  const isArray = Array.isArray, isView = ArrayBuffer.isView;
  const BasePromise = Promise, BaseMap = Map, BaseSet = Set, BaseError = Error, BaseDate = Date, BaseRegExp = RegExp;
  const BaseNumber = Number, BaseString = String, BaseBuffer = ArrayBuffer, BaseTypeError = TypeError;
  const BaseWeakMap = WeakMap, BaseBoolean = Boolean;
  const iterator = getPrototypeOf(getPrototypeOf([][Symbol.iterator]()));
  const asyncIterator = getPrototypeOf(getPrototypeOf(getPrototypeOf((async function* () {})())));
  const isPrototypeOf = plain.isPrototypeOf;
  const { get: weakGet, set: weakSet, has: weakHas } = WeakMap.prototype;
  const all = BasePromise.all;

  // Internal: a program never receives an instance.
  class Refusal {
    constructor(path, what) { this.path = path; this.what = what; }
  }

  const step = (holder, key) => {
    const short = key.length > 64 ? `${key.slice(0, 64)}…` : key;
    if (isArray(holder)) return `[${short}]`;
    return /^[A-Za-z_$][\w$]*$/.test(short) ? `.${short}` : `[${stringify(short)}]`;
  };
  const classOf = (value) => {
    const name = getPrototypeOf(value)?.constructor?.name;
    return typeof name === "string" && name !== "" ? name.slice(0, 64) : "a class";
  };
  const kindOf = (value) => {
    if (value instanceof BaseMap) return "a Map, which JSON cannot represent; write `Object.fromEntries(map)` or `[...map]`";
    if (value instanceof BaseSet) return "a Set, which JSON cannot represent; write `[...set]`";
    if (value instanceof BaseRegExp) return "a regular expression, which JSON cannot represent; write its `source`";
    if (value instanceof BaseBuffer || isView(value)) {
      return "binary data, which JSON cannot represent; write `Array.from(bytes)`, or its text by `new TextDecoder().decode(bytes)`";
    }
    if (apply(isPrototypeOf, iterator, [value])) return "an iterator, which JSON cannot represent; write `[...iterator]`";
    if (apply(isPrototypeOf, asyncIterator, [value])) {
      return "an asynchronous iterator, which JSON cannot represent; collect its items with `for await`";
    }
    return undefined;
  };

  // Returns the JSON of `root`. A promise is written as its value in `settled`. A promise that is not in it is added to
  // `waiting`, or refused if there is no `waiting`.
  const encode = (root, settled, waiting) => {
    // The containers on the path from the root to the current one: as they are written, and as the program holds them.
    const holders = [], origins = [], names = [];
    let depth = 0;
    const refuse = (holder, key, what) => {
      let path = "";
      for (let i = 1; i < depth && i < 100; i++) path += step(holders[i - 1], names[i]);
      if (depth > 0) path += step(holder, key);
      throw new Refusal(path, what);
    };
    const errorForm = (error) => {
      const form = {};
      const put = (name, value) =>
        defineProperty(form, name, { value, writable: true, configurable: true, enumerable: true });
      put("name", BaseString(error.name));
      put("message", BaseString(error.message));
      for (const name of keys(error)) put(name, error[name]);
      if (error.cause !== undefined) put("cause", error.cause);
      if (isArray(error.errors)) put("errors", error.errors);
      return form;
    };
    const enter = (holder, key, value, written = value) => {
      for (let i = 0; i < depth; i++) {
        if (origins[i] === value) refuse(holder, key, "an object that contains itself; JSON has no cycles");
      }
      holders[depth] = written;
      origins[depth] = value;
      names[depth] = key;
      depth++;
      return written;
    };
    const visit = (holder, key, value) => {
      switch (typeof value) {
        case "string": case "boolean": case "undefined": return value;
        case "number":
          if (value - value === 0) return value;
          return refuse(holder, key, `${value}, which JSON cannot represent; write \`null\`, or test with \`Number.isFinite\` before`);
        case "bigint": return refuse(holder, key, `the BigInt ${BaseString(value).slice(0, 40)}n, which JSON cannot represent; write \`String(n)\` or \`Number(n)\``);
        case "symbol": return refuse(holder, key, "a symbol, which JSON cannot represent; write a string");
        case "function": {
          const label = apply(weakGet, labels, [value]);
          return refuse(holder, key, label === undefined
            ? "a function, which JSON cannot represent; call it, or leave it out"
            : "a tool; call it with `await` and pass on its result");
        }
      }
      if (value === null) {
        const raw = getOwnPropertyDescriptor(holder, key)?.value;
        if (raw instanceof BaseDate) refuse(holder, key, "an invalid Date; test with `Number.isNaN(date.getTime())` before");
        return null;
      }
      if (apply(weakHas, labels, [value])) return refuse(holder, key, "a part of `mcp`, which is not data; call one of its tools");
      if (isArray(value)) return enter(holder, key, value);
      const prototype = getPrototypeOf(value);
      if (prototype === plain || prototype === null) return enter(holder, key, value);
      if (value instanceof BasePromise) {
        if (waiting === undefined) return refuse(holder, key, "a promise; write `await` before it");
        if (!apply(weakHas, settled, [value])) {
          waiting[waiting.length] = value;
          return null;
        }
        const gave = apply(weakGet, settled, [value]);
        const form = gave?.toJSON;
        const ready = typeof form === "function" ? apply(form, gave, [key]) : gave;
        if (ready === value) return refuse(holder, key, "a promise of itself");
        if (ready === null && gave instanceof BaseDate) refuse(holder, key, "an invalid Date; test with `Number.isNaN(date.getTime())` before");
        return visit(holder, key, ready);
      }
      if (value instanceof BaseError) return enter(holder, key, value, errorForm(value));
      if (value instanceof BaseNumber) return visit(holder, key, BaseNumber(value));
      const what = kindOf(value);
      if (what !== undefined) return refuse(holder, key, what);
      // `Number`, `String` and `Boolean` objects are unwrapped.
      if (value instanceof BaseString || value instanceof BaseBoolean) return value;
      if (keys(value).length === 0) {
        return refuse(holder, key, `an object of ${classOf(value)} without fields, which JSON cannot represent; write the parts that you need`);
      }
      return enter(holder, key, value);
    };
    return stringify(root, function (key, value) {
      while (depth > 0 && holders[depth - 1] !== this) depth--;
      return visit(this, key, value);
    });
  };

  // Fast path: most arguments are a few strings and numbers.
  const isFlat = (args) => {
    if (getPrototypeOf(args) !== plain || args.toJSON !== undefined) return false;
    const names = keys(args);
    for (let i = 0; i < names.length; i++) {
      const value = args[names[i]];
      switch (typeof value) {
        case "string": case "boolean": break;
        case "number": if (value - value !== 0) return false; break;
        default: return false;
      }
    }
    return true;
  };

  const encodeArguments = (args, name) => {
    if (isFlat(args)) return stringify(args);
    try {
      return encode(args);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const path = error.path[0] === "." ? error.path.slice(1) : error.path;
      const place = path === "" ? `the argument of ${name}` : `\`${path}\` in the arguments of ${name}`;
      throw new BaseTypeError(`${place} is ${error.what}`);
    }
  };

  // The error for which a result cannot be serialized, and who threw it: 1 is this writer, 2 the program's own code.
  let serializeError, thrownBy = 0;

  // Waits for the promises that a result holds, and for those that they hold, and returns its JSON.
  const finish = async (result) => {
    const settled = new BaseWeakMap();
    for (;;) {
      const waiting = [];
      let text;
      try {
        text = encode(result, settled, waiting);
      } catch (error) {
        thrownBy = error instanceof Refusal ? 1 : 2;
        serializeError = thrownBy === 1 ? new BaseTypeError(`\`result${error.path}\` is ${error.what}`) : error;
        throw serializeError;
      }
      if (waiting.length === 0) return text;
      const values = await apply(all, BasePromise, [waiting]);
      for (let i = 0; i < waiting.length; i++) apply(weakSet, settled, [waiting[i], values[i]]);
    }
  };
  const whyNotSerializable = (error) => (thrownBy !== 0 && error === serializeError ? thrownBy : 0);

  return { encodeArguments, finish, whyNotSerializable };
})
