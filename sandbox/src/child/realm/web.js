// The parts of the web platform that programs expect: text encodings, crypto, structured clones, abort signals, URLs.
(function (host, realm) {
  "use strict";
  const { hidden, wellFormed } = realm;
  const textOf = (value) => wellFormed(String(value));
  const { create, defineProperty, getPrototypeOf, keys, hasOwn } = Object;
  const isArray = Array.isArray;

  // ---- text and bytes ----------------------------------------------------------------------------------
  hidden("TextEncoder", class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(text = "") { return host.encode(textOf(text)); }
  });
  hidden("TextDecoder", class TextDecoder {
    #fatal;
    #keepMark;
    constructor(label = "utf-8", options = {}) {
      if (!/^(?:utf-?8|unicode-1-1-utf-8)$/i.test(String(label).trim())) {
        throw new RangeError(`TextDecoder supports only utf-8, not ${JSON.stringify(String(label))}`);
      }
      this.#fatal = Boolean(options.fatal);
      this.#keepMark = Boolean(options.ignoreBOM);
    }
    get encoding() { return "utf-8"; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#keepMark; }
    decode(bytes, options = {}) {
      if (options.stream) throw new TypeError("TextDecoder does not decode streams here: decode all bytes at once");
      if (bytes === undefined) return "";
      const view = ArrayBuffer.isView(bytes)
        ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)
        : new Uint8Array(bytes);
      const text = host.decode(view, this.#fatal);
      if (text == null) throw new TypeError("the bytes are not valid utf-8");
      return !this.#keepMark && text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
    }
  });

  const badText = (what) => {
    throw new DOMException(what, "InvalidCharacterError");
  };
  hidden("btoa", function btoa(text) {
    const bytes = new Uint8Array((text = String(text)).length);
    for (let i = 0; i < bytes.length; i++) {
      const code = text.charCodeAt(i);
      if (code > 255) badText("btoa takes characters up to U+00FF: encode the text with TextEncoder first");
      bytes[i] = code;
    }
    return bytes.toBase64();
  });
  hidden("atob", function atob(text) {
    let bytes;
    try {
      bytes = Uint8Array.fromBase64(String(text), { lastChunkHandling: "loose" });
    } catch {
      badText("the text is not valid base64");
    }
    let decoded = "";
    for (const byte of bytes) decoded += String.fromCharCode(byte);
    return decoded;
  });

  // ---- crypto ------------------------------------------------------------------------------------------
  const crypto = {
    getRandomValues(view) {
      if (!ArrayBuffer.isView(view) || view instanceof DataView || /^Float/.test(view[Symbol.toStringTag])) {
        throw new TypeError("crypto.getRandomValues takes an integer typed array");
      }
      if (view.byteLength > 65536) throw new DOMException("at most 65536 bytes at once", "QuotaExceededError");
      new Uint8Array(view.buffer, view.byteOffset, view.byteLength).set(host.randomBytes(view.byteLength));
      return view;
    },
    randomUUID() {
      const bytes = host.randomBytes(16);
      bytes[6] = (bytes[6] & 0x0f) | 0x40;
      bytes[8] = (bytes[8] & 0x3f) | 0x80;
      let text = "";
      for (let i = 0; i < 16; i++) {
        if (i === 4 || i === 6 || i === 8 || i === 10) text += "-";
        text += (bytes[i] + 256).toString(16).slice(1);
      }
      return text;
    },
  };
  hidden("crypto", crypto);

  // ---- structured clones -------------------------------------------------------------------------------
  const refuseClone = (what) => {
    throw new DOMException(`${what} cannot be cloned`, "DataCloneError");
  };
  const clone = (value, seen) => {
    if (typeof value === "function") refuseClone("a function");
    if (typeof value === "symbol") refuseClone("a symbol");
    if (typeof value !== "object" || value === null) return value;
    if (seen.has(value)) return seen.get(value);
    const keep = (copy) => (seen.set(value, copy), copy);
    if (value instanceof Date) return keep(new Date(value.getTime()));
    if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
    if (value instanceof Boolean || value instanceof Number || value instanceof String) return keep(Object(value.valueOf()));
    if (value instanceof ArrayBuffer) return keep(value.slice(0));
    if (ArrayBuffer.isView(value)) {
      const buffer = clone(value.buffer, seen);
      const made = getPrototypeOf(value).constructor;
      return keep(new made(buffer, value.byteOffset, value instanceof DataView ? value.byteLength : value.length));
    }
    if (value instanceof Map) {
      const copy = keep(new Map());
      for (const [key, entry] of [...value]) copy.set(clone(key, seen), clone(entry, seen));
      return copy;
    }
    if (value instanceof Set) {
      const copy = keep(new Set());
      for (const entry of [...value]) copy.add(clone(entry, seen));
      return copy;
    }
    if (value instanceof Error) {
      const types = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
      const copy = keep(new (hasOwn(types, value.name) ? types[value.name] : Error)(String(value.message)));
      defineProperty(copy, "stack", { value: value.stack, writable: true, configurable: true });
      if (hasOwn(value, "cause")) copy.cause = clone(value.cause, seen);
      return copy;
    }
    if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet) refuseClone("this object");
    const copy = keep(isArray(value) ? new Array(value.length) : {});
    for (const key of keys(value)) {
      defineProperty(copy, key, { value: clone(value[key], seen), writable: true, configurable: true, enumerable: true });
    }
    return copy;
  };
  hidden("structuredClone", function structuredClone(value, options) {
    if (arguments.length === 0) throw new TypeError("structuredClone takes a value");
    if (options?.transfer?.length) throw new DOMException("nothing can be transferred here", "DataCloneError");
    return clone(value, new Map());
  });

  // ---- abort signals -----------------------------------------------------------------------------------
  const inside = Symbol("inside");
  let fireAbort;
  class AbortSignal {
    #aborted = false;
    #reason = undefined;
    #listeners = [];
    onabort = null;
    constructor(key) {
      if (key !== inside) throw new TypeError("use new AbortController().signal");
    }
    get aborted() { return this.#aborted; }
    get reason() { return this.#reason; }
    throwIfAborted() { if (this.#aborted) throw this.#reason; }
    addEventListener(type, listener, options) {
      if (type !== "abort" || listener == null || this.#listeners.some((entry) => entry.listener === listener)) return;
      this.#listeners.push({ listener, once: Boolean(options?.once) });
    }
    removeEventListener(type, listener) {
      if (type === "abort") this.#listeners = this.#listeners.filter((entry) => entry.listener !== listener);
    }
    static #fire(signal, reason) {
      if (signal.#aborted) return;
      signal.#aborted = true;
      signal.#reason = reason === undefined ? new DOMException("the operation was aborted", "AbortError") : reason;
      const event = { type: "abort", target: signal, currentTarget: signal };
      if (typeof signal.onabort === "function") signal.onabort(event);
      for (const { listener } of signal.#listeners.splice(0)) {
        if (typeof listener === "function") listener.call(signal, event);
        else listener.handleEvent(event);
      }
    }
    static {
      fireAbort = AbortSignal.#fire;
    }
    static abort(reason) {
      const signal = new AbortSignal(inside);
      fireAbort(signal, reason);
      return signal;
    }
    static timeout(delay) {
      const signal = new AbortSignal(inside);
      setTimeout(() => fireAbort(signal, new DOMException("the operation timed out", "TimeoutError")), delay);
      return signal;
    }
    static any(signals) {
      const signal = new AbortSignal(inside);
      for (const source of signals) {
        if (source.aborted) return fireAbort(signal, source.reason), signal;
        source.addEventListener("abort", () => fireAbort(signal, source.reason));
      }
      return signal;
    }
  }
  hidden("AbortSignal", AbortSignal);
  hidden("AbortController", class AbortController {
    #signal = new AbortSignal(inside);
    get signal() { return this.#signal; }
    abort(reason) { fireAbort(this.#signal, reason); }
  });

  // ---- URLs --------------------------------------------------------------------------------------------
  const onSearch = Symbol("onSearch");
  class URLSearchParams {
    #pairs = [];
    #changed = null;
    constructor(init = "") {
      if (init !== null && typeof init === "object") {
        if (typeof init[Symbol.iterator] === "function") {
          for (const pair of init) {
            const [name, value, ...rest] = pair;
            if (rest.length > 0 || value === undefined) throw new TypeError("each entry must be a pair of a name and a value");
            this.#pairs.push([textOf(name), textOf(value)]);
          }
        } else {
          for (const name of keys(init)) this.#pairs.push([name, textOf(init[name])]);
        }
      } else {
        this.#pairs = host.parseQuery(textOf(init).replace(/^\?/, ""));
      }
    }
    [onSearch](search, changed) {
      this.#pairs = host.parseQuery(search.replace(/^\?/, ""));
      this.#changed = changed;
    }
    #update() { if (this.#changed !== null) this.#changed(this.toString()); }
    get size() { return this.#pairs.length; }
    append(name, value) { this.#pairs.push([textOf(name), textOf(value)]); this.#update(); }
    delete(name, value) {
      this.#pairs = this.#pairs.filter((pair) => pair[0] !== textOf(name) || (value !== undefined && pair[1] !== textOf(value)));
      this.#update();
    }
    get(name) { return this.#pairs.find((pair) => pair[0] === textOf(name))?.[1] ?? null; }
    getAll(name) { return this.#pairs.filter((pair) => pair[0] === textOf(name)).map((pair) => pair[1]); }
    has(name, value) {
      return this.#pairs.some((pair) => pair[0] === textOf(name) && (value === undefined || pair[1] === textOf(value)));
    }
    set(name, value) {
      const at = this.#pairs.findIndex((pair) => pair[0] === textOf(name));
      if (at < 0) this.#pairs.push([textOf(name), textOf(value)]);
      else {
        this.#pairs[at][1] = textOf(value);
        this.#pairs = this.#pairs.filter((pair, index) => index <= at || pair[0] !== textOf(name));
      }
      this.#update();
    }
    sort() { this.#pairs.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)); this.#update(); }
    forEach(callback, self) { for (const [name, value] of this.#pairs) callback.call(self, value, name, this); }
    *entries() { for (const [name, value] of this.#pairs) yield [name, value]; }
    *keys() { for (const [name] of this.#pairs) yield name; }
    *values() { for (const pair of this.#pairs) yield pair[1]; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return host.formatQuery(this.#pairs); }
  }
  hidden("URLSearchParams", URLSearchParams);

  // The parts of a URL, in the order in which the native functions return them.
  const parts = ["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"];
  class URL {
    #values;
    #query = new URLSearchParams();
    constructor(address, base) {
      const values = host.parseUrl(textOf(address), base === undefined ? null : textOf(base));
      if (values == null) throw new TypeError(`${JSON.stringify(String(address))} is not a valid address`);
      this.#adopt(values, true);
    }
    #adopt(values, refresh) {
      this.#values = values;
      if (refresh) {
        this.#query[onSearch](values[9], (search) => {
          const changed = host.changeUrl(this.#values[0], "search", search);
          if (changed != null) this.#adopt(changed, false);
        });
      }
    }
    static #part(url, index) { return url.#values[index]; }
    static #change(url, name, value) {
      const changed = host.changeUrl(url.#values[0], name, textOf(value));
      if (changed != null) url.#adopt(changed, true);
      else if (name === "href") throw new TypeError(`${JSON.stringify(String(value))} is not a valid address`);
    }
    static {
      parts.forEach((name, index) => {
        defineProperty(URL.prototype, name, {
          get() { return URL.#part(this, index); },
          set: name === "origin" ? undefined : function (value) { URL.#change(this, name, value); },
          enumerable: true,
          configurable: true,
        });
      });
    }
    get searchParams() { return this.#query; }
    toString() { return this.href; }
    toJSON() { return this.href; }
    static canParse(address, base) { return host.parseUrl(textOf(address), base === undefined ? null : textOf(base)) != null; }
    static parse(address, base) { return URL.canParse(address, base) ? new URL(address, base) : null; }
  }
  hidden("URL", URL);
})
