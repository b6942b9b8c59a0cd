// Builds the globals of a program. Runs once in a sealed child, before any program is known.
// `host` holds the native functions; nothing of it may become reachable from a program. `writer` makes JSON of values.
(function (host, writer) {
  "use strict";
  const global = globalThis;
  const { create, defineProperty, freeze, getOwnPropertyDescriptor, getPrototypeOf, keys } = Object;
  const { apply, construct } = Reflect;
  const { stringify } = JSON;
  const isArray = Array.isArray;
  const BaseProxy = Proxy, BasePromise = Promise, BaseError = Error, BaseTypeError = TypeError, BaseRangeError = RangeError;
  const BaseDate = Date, BaseString = String, BaseFunction = Function, BaseMap = Map, BaseSet = Set;
  const hasOwn = Object.hasOwn;
  const toWellFormed = BaseString.prototype.toWellFormed;
  const wellFormed = (text) => apply(toWellFormed, text, []);
  const describe = (value) => (value === null ? "null" : isArray(value) ? "an array" : `a ${typeof value}`);

  const hidden = (name, value) =>
    defineProperty(global, name, { value, writable: true, configurable: true, enumerable: false });
  const fixed = (object, name, value) =>
    defineProperty(object, name, { value, writable: false, configurable: false, enumerable: false });

  // ---- Nothing turns text into code. -------------------------------------------------------------------
  const refuseCode = function Function() {
    throw new EvalError("code from text is not run here: only the analysed program runs");
  };
  fixed(refuseCode, "prototype", BaseFunction.prototype);
  for (const sample of [function () {}, async function () {}, function* () {}, async function* () {}]) {
    fixed(getPrototypeOf(sample), "constructor", refuseCode);
  }
  fixed(global, "Function", refuseCode);
  fixed(global, "eval", function () {
    throw new EvalError("`eval` is not available: only the analysed program runs");
  });
  for (const name of ["prepareStackTrace", "stackTraceLimit"]) delete Error[name];
  for (const name of ["SharedArrayBuffer", "Atomics", "WeakRef", "FinalizationRegistry", "performance"]) {
    delete global[name];
  }

  // ---- The analysis relies on these: iteration over an array is what the language defines. -----------------
  for (const name of [
    "map", "forEach", "filter", "flatMap", "some", "every", "find", "findIndex", "findLast",
    "findLastIndex", "reduce", "reduceRight", Symbol.iterator,
  ]) {
    fixed(Array.prototype, name, Array.prototype[name]);
  }
  const arrayIterator = getPrototypeOf([][Symbol.iterator]());
  fixed(arrayIterator, "next", arrayIterator.next);

  // ---- mcp ---------------------------------------------------------------------------------------------
  const pending = create(null);
  const labels = new WeakMap();
  const { encodeArguments, finish, whyNotSerializable } = writer(labels);
  // The language calls methods of these names by itself, so a tool with one of them could run without a call.
  const implicit = freeze({
    __proto__: null, then: true, toJSON: true, toString: true, valueOf: true, constructor: true,
    prototype: true,
  });
  const isPlainName = (key) => typeof key === "string" && implicit[key] !== true && key !== "__proto__";

  const mark = (error, name, message, code) => {
    const property = (key, value) =>
      defineProperty(error, key, { value, writable: true, configurable: true, enumerable: false });
    property("name", name);
    property("message", message);
    if (code !== undefined) defineProperty(error, "code", { value: code, writable: true, configurable: true, enumerable: true });
    return error;
  };

  // One function for all promises: a closure for each would cost more than the promise.
  let settleMade, rejectMade;
  const making = (resolve, reject) => { settleMade = resolve; rejectMade = reject; };

  // All in one function: capturing the stack for an error costs more with every frame.
  const makeTool = (name, tool) => (...given) => {
    const site = new BaseError("");
    const made = new BasePromise(making);
    const resolve = settleMade, reject = rejectMade;
    const refuse = (kind, message, code) => {
      reject(mark(site, kind, message, code));
      return made;
    };
    if (given.length > 1) {
      return refuse("TypeError", `${name} takes one object of named arguments, not ${given.length} arguments`);
    }
    let args = given[0];
    if (args === undefined) args = {};
    if (args === null || typeof args !== "object" || isArray(args)) {
      return refuse("TypeError", `${name} takes one object of named arguments, as in ${name}({ … }), not ${describe(args)}`);
    }
    let text;
    try {
      text = encodeArguments(args, name);
    } catch (error) {
      return refuse("TypeError", BaseString(error?.message));
    }
    if (typeof text !== "string" || text[0] !== "{") {
      return refuse("TypeError", `the arguments of ${name} are not a plain object`);
    }
    const call = host.call(tool, text);
    if (typeof call === "string") return refuse("RangeError", call, "ARGUMENT_TOO_LARGE");
    pending[call] = { resolve, reject, site };
    return made;
  };

  // Maps an error that a call threw to the number of that call, for the report of a failure.
  const failed = new WeakMap();
  const { get: weakGet, set: weakSet } = WeakMap.prototype;
  const callOf = (error) => apply(weakGet, failed, [error]);

  const settle = (id, ok, value, name, message, code) => {
    const call = pending[id];
    if (call === undefined) return false;
    delete pending[id];
    if (ok) call.resolve(value);
    else {
      apply(weakSet, failed, [call.site, id]);
      call.reject(mark(call.site, name, message, code));
    }
    return true;
  };

  const refuseChange = {
    set: () => false, defineProperty: () => false, deleteProperty: () => false,
    setPrototypeOf: () => false, getOwnPropertyDescriptor: () => undefined, ownKeys: () => [],
    has: (_, key) => isPlainName(key),
  };
  const lazily = (label, make) => {
    const made = create(null);
    const proxy = new BaseProxy(freeze(create(null)), freeze({
      __proto__: null,
      ...refuseChange,
      get: (_, key) => (isPlainName(key) ? (made[key] ??= make(key)) : undefined),
    }));
    labels.set(proxy, label);
    return proxy;
  };
  const mcp = lazily("[mcp]", (namespace) =>
    lazily(`[mcp.${namespace}]`, (action) => {
      const name = `mcp.${namespace}.${action}`;
      const tool = makeTool(name, host.tool(namespace, action));
      defineProperty(tool, "name", { value: action });
      labels.set(tool, `[${name}]`);
      return freeze(tool);
    }),
  );
  fixed(global, "mcp", mcp);

  // ---- console -----------------------------------------------------------------------------------------
  const quote = (text) => stringify(text);
  const errorText = (error) => {
    const name = BaseString(error.name ?? "Error");
    const message = BaseString(error.message ?? "");
    const stack = host.trimStack(typeof error.stack === "string" ? error.stack : "");
    return (message ? `${name}: ${message}` : name) + (stack ? `\n${stack}` : "");
  };
  const show = (value, depth, seen) => {
    switch (typeof value) {
      case "string": return depth === 0 ? value : quote(value);
      case "bigint": return `${value}n`;
      case "symbol": return BaseString(value);
      case "function": return labels.get(value) ?? `[Function: ${BaseString(value.name) || "(anonymous)"}]`;
      case "object": break;
      default: return Object.is(value, -0) ? "-0" : BaseString(value);
    }
    if (value === null) return "null";
    const label = labels.get(value);
    if (label !== undefined) return label;
    if (value instanceof BaseError) return errorText(value);
    if (value instanceof BaseDate) return isNaN(value) ? "Invalid Date" : value.toISOString();
    if (value instanceof RegExp) return BaseString(value);
    if (value instanceof BasePromise) return "Promise {}";
    if (seen.includes(value)) return "[Circular]";
    if (depth > 5) return isArray(value) ? "[Array]" : "[Object]";
    const inside = [...seen, value];
    const list = (parts, total, open, close) => {
      if (parts.length < total) parts.push(`… ${total - parts.length} more`);
      return parts.length === 0 ? open + close : `${open} ${parts.join(", ")} ${close}`;
    };
    const most = 100;
    if (isArray(value) || ArrayBuffer.isView(value) && !(value instanceof DataView)) {
      const parts = [];
      for (let i = 0; i < value.length && i < most; i++) parts.push(show(value[i], depth + 1, inside));
      return (isArray(value) ? "" : `${getPrototypeOf(value).constructor?.name} `) + list(parts, value.length, "[", "]");
    }
    if (value instanceof BaseMap || value instanceof BaseSet) {
      const parts = [];
      for (const entry of value) {
        if (parts.length >= most) break;
        parts.push(value instanceof BaseMap
          ? `${show(entry[0], depth + 1, inside)} => ${show(entry[1], depth + 1, inside)}`
          : show(entry, depth + 1, inside));
      }
      return `${value instanceof BaseMap ? "Map" : "Set"}(${value.size}) ${list(parts, value.size, "{", "}")}`;
    }
    const names = keys(value);
    const parts = [];
    for (const name of names) {
      if (parts.length >= most) break;
      const property = getOwnPropertyDescriptor(value, name);
      const text = property === undefined || hasOwn(property, "value") ? show(property?.value, depth + 1, inside) : "[Getter]";
      parts.push(`${/^[A-Za-z_$][\w$]*$/.test(name) ? name : quote(name)}: ${text}`);
    }
    const made = getPrototypeOf(value)?.constructor?.name;
    return (typeof made === "string" && made !== "Object" && made !== "" ? `${made} ` : "") + list(parts, names.length, "{", "}");
  };
  const print = (level) => (...values) => {
    const parts = [];
    for (const value of values) {
      try {
        parts.push(show(value, 0, []));
      } catch {
        parts.push("[a value that cannot be shown]");
      }
    }
    host.log(level, wellFormed(parts.join(" ")));
  };
  const consoleObject = {};
  for (const level of ["log", "info", "warn", "error", "debug"]) consoleObject[level] = print(level);
  hidden("console", consoleObject);

  // ---- timers ------------------------------------------------------------------------------------------
  const timers = create(null);
  const arm = (repeat) => (callback, delay, ...args) => {
    if (typeof callback !== "function") throw new BaseTypeError("a timer takes a function");
    const wait = Math.max(repeat ? 1 : 0, Math.min(Number(delay) || 0, 2 ** 31 - 1));
    const id = host.arm(wait, 0, repeat);
    if (id === undefined || id === null) {
      throw mark(new BaseRangeError(""), "RangeError", `a program has at most ${host.mostTimers} timers at once`, "TOO_MANY_TIMERS");
    }
    timers[id] = { callback, args, wait, repeat };
    return id;
  };
  const disarm = (id) => {
    if (timers[id] === undefined) return;
    delete timers[id];
    host.disarm(Number(id));
  };
  const fire = (id) => {
    const timer = timers[id];
    if (timer === undefined) return;
    if (timer.repeat) host.arm(timer.wait, id, true);
    else delete timers[id];
    apply(timer.callback, undefined, timer.args);
  };
  hidden("setTimeout", function setTimeout(callback, delay, ...args) { return arm(false)(callback, delay, ...args); });
  hidden("setInterval", function setInterval(callback, delay, ...args) { return arm(true)(callback, delay, ...args); });
  hidden("clearTimeout", function clearTimeout(id) { disarm(id); });
  hidden("clearInterval", function clearInterval(id) { disarm(id); });

  // ---- time and random numbers -------------------------------------------------------------------------
  const now = () => host.now();
  const HostDate = function Date(...given) {
    if (new.target === undefined) return new BaseDate(now()).toString();
    return construct(BaseDate, given.length === 0 ? [now()] : given, new.target === HostDate ? BaseDate : new.target);
  };
  fixed(HostDate, "prototype", BaseDate.prototype);
  defineProperty(HostDate, "length", { value: 7 });
  for (const [name, value] of [["now", now], ["parse", BaseDate.parse], ["UTC", BaseDate.UTC]]) {
    defineProperty(HostDate, name, { value, writable: true, configurable: true });
  }
  defineProperty(BaseDate.prototype, "constructor", { value: HostDate, writable: true, configurable: true });
  hidden("Date", HostDate);
  defineProperty(Math, "random", { value: () => host.random(), writable: true, configurable: true });

  // ---- absent globals throw an error that says so ------------------------------------------------------
  const instead = "call mcp.<namespace>.<action>({ … })";
  const absent = (name, why) => {
    const refuse = () => {
      throw new BaseTypeError(`\`${name}\` is not available: ${why}; ${instead}`);
    };
    const stub = new BaseProxy(function () {}, {
      __proto__: null,
      apply: refuse, construct: refuse, set: refuse, has: refuse, defineProperty: refuse, deleteProperty: refuse,
      get: (_, key) => (typeof key === "symbol" ? undefined : refuse()),
      getPrototypeOf: () => null,
      ownKeys: refuse,
    });
    labels.set(stub, `[${name} is not available]`);
    hidden(name, stub);
  };
  absent("fetch", "there is no network here");
  absent("require", "there are no modules here");
  absent("process", "there is no process and no environment here");
  absent("Deno", "this is not Deno");
  absent("Buffer", "this is not Node.js");

  return {
    settle,
    callOf,
    fire,
    start: (args) => fixed(global, "args", args),
    stringify,
    finish,
    whyNotSerializable,
    hidden,
    wellFormed,
  };
})
