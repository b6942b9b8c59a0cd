//! The names of the functions of the engine's objects.

use std::sync::LazyLock;

use foldhash::HashSet;

/// Returns whether an object of the engine may have a function by this name.
#[must_use]
pub fn is_engine_function(name: &str) -> bool {
    // Asked at most reads of a property, where a search among the sorted names takes ten comparisons.
    static ALL: LazyLock<HashSet<&str>> = LazyLock::new(|| FUNCTIONS.iter().copied().collect());
    ALL.contains(name)
}

/// Sorted by bytes. A test compares them with the engine.
#[rustfmt::skip]
const FUNCTIONS: &[&str] = &[
    "AbortController", "AbortSignal", "AggregateError", "Array", "ArrayBuffer", "AsyncDisposableStack",
    "BigInt", "BigInt64Array", "BigUint64Array", "Boolean", "Buffer", "Collator", "DOMException", "DataView",
    "Date", "DateTimeFormat", "Deno", "DisposableStack", "Error", "EvalError", "Float16Array", "Float32Array",
    "Float64Array", "Function", "Int16Array", "Int32Array", "Int8Array", "InternalError", "Iterator",
    "ListFormat", "Map", "Number", "NumberFormat", "Object", "PluralRules", "Promise", "Proxy", "RangeError",
    "ReferenceError", "RegExp", "Set", "String", "SuppressedError", "Symbol", "SyntaxError", "TextDecoder",
    "TextEncoder", "TypeError", "URIError", "URL", "URLSearchParams", "UTC", "Uint16Array", "Uint32Array",
    "Uint8Array", "Uint8ClampedArray", "WeakMap", "WeakSet", "__defineGetter__", "__defineSetter__",
    "__lookupGetter__", "__lookupSetter__", "abort", "abs", "acos", "acosh", "add", "addEventListener", "adopt",
    "all", "allSettled", "anchor", "any", "append", "apply", "asIntN", "asUintN", "asin", "asinh", "assign",
    "at", "atan", "atan2", "atanh", "atob", "big", "bind", "blink", "bold", "btoa", "call", "canParse",
    "captureStackTrace", "catch", "cbrt", "ceil", "charAt", "charCodeAt", "chunks", "clear", "clearInterval",
    "clearTimeout", "clz32", "codePointAt", "compile", "concat", "construct", "constructor", "copyWithin",
    "cos", "cosh", "create", "debug", "decode", "decodeURI", "decodeURIComponent", "defer", "defineProperties",
    "defineProperty", "delete", "deleteProperty", "difference", "dispose", "disposeAsync", "drop", "encode",
    "encodeURI", "encodeURIComponent", "endsWith", "entries", "error", "escape", "eval", "every", "exec", "exp",
    "expm1", "f16round", "fetch", "fill", "filter", "finally", "find", "findIndex", "findLast", "findLastIndex",
    "fixed", "flat", "flatMap", "floor", "fontcolor", "fontsize", "for", "forEach", "format", "formatToParts",
    "freeze", "from", "fromAsync", "fromBase64", "fromCharCode", "fromCodePoint", "fromEntries", "fromHex",
    "fround", "get", "getAll", "getBigInt64", "getBigUint64", "getDate", "getDay", "getFloat16", "getFloat32",
    "getFloat64", "getFullYear", "getHours", "getInt16", "getInt32", "getInt8", "getMilliseconds", "getMinutes",
    "getMonth", "getOrInsert", "getOrInsertComputed", "getOwnPropertyDescriptor", "getOwnPropertyDescriptors",
    "getOwnPropertyNames", "getOwnPropertySymbols", "getPrototypeOf", "getRandomValues", "getSeconds",
    "getTime", "getTimezoneOffset", "getUTCDate", "getUTCDay", "getUTCFullYear", "getUTCHours",
    "getUTCMilliseconds", "getUTCMinutes", "getUTCMonth", "getUTCSeconds", "getUint16", "getUint32", "getUint8",
    "getYear", "groupBy", "has", "hasOwn", "hasOwnProperty", "hypot", "imul", "includes", "indexOf", "info",
    "intersection", "is", "isArray", "isDisjointFrom", "isError", "isExtensible", "isFinite", "isFrozen",
    "isInteger", "isNaN", "isPrototypeOf", "isRawJSON", "isSafeInteger", "isSealed", "isSubsetOf",
    "isSupersetOf", "isView", "isWellFormed", "italics", "join", "keyFor", "keys", "lastIndexOf", "link",
    "localeCompare", "log", "log10", "log1p", "log2", "map", "match", "matchAll", "max", "min", "move", "next",
    "normalize", "now", "of", "ownKeys", "padEnd", "padStart", "parse", "parseFloat", "parseInt", "pop", "pow",
    "preventExtensions", "process", "propertyIsEnumerable", "prototype", "push", "queueMicrotask", "race",
    "random", "randomUUID", "raw", "rawJSON", "reduce", "reduceRight", "reject", "removeEventListener",
    "repeat", "replace", "replaceAll", "require", "resize", "resolve", "resolvedOptions", "return", "reverse",
    "revocable", "round", "seal", "search", "select", "set", "setBigInt64", "setBigUint64", "setDate",
    "setFloat16", "setFloat32", "setFloat64", "setFromBase64", "setFromHex", "setFullYear", "setHours",
    "setInt16", "setInt32", "setInt8", "setInterval", "setMilliseconds", "setMinutes", "setMonth",
    "setPrototypeOf", "setSeconds", "setTime", "setTimeout", "setUTCDate", "setUTCFullYear", "setUTCHours",
    "setUTCMilliseconds", "setUTCMinutes", "setUTCMonth", "setUTCSeconds", "setUint16", "setUint32", "setUint8",
    "setYear", "shift", "sign", "sin", "sinh", "slice", "sliceToImmutable", "small", "some", "sort", "splice",
    "split", "sqrt", "startsWith", "strike", "stringify", "structuredClone", "sub", "subarray", "substr",
    "substring", "sumPrecise", "sup", "supportedLocalesOf", "symmetricDifference", "take", "tan", "tanh",
    "test", "then", "throw", "throwIfAborted", "timeout", "toArray", "toBase64", "toDateString",
    "toExponential", "toFixed", "toGMTString", "toHex", "toISOString", "toJSON", "toLocaleDateString",
    "toLocaleLowerCase", "toLocaleString", "toLocaleTimeString", "toLocaleUpperCase", "toLowerCase",
    "toPrecision", "toReversed", "toSorted", "toSpliced", "toString", "toTimeString", "toUTCString",
    "toUpperCase", "toWellFormed", "transfer", "transferToFixedLength", "transferToImmutable", "trim",
    "trimEnd", "trimLeft", "trimRight", "trimStart", "trunc", "try", "unescape", "union", "unshift", "use",
    "valueOf", "values", "warn", "windows", "with", "withResolvers", "zip", "zipKeyed",
];
