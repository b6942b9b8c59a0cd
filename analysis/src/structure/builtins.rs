//! Tables of what the engine's functions do.
//!
//! Each row is a rule that must be sound. A function without a row is unknown code: its result depends on
//! everything that it can reach, and it may change all of that, call any function in it, and fail.
//! `docs/builtins.md` shows the rows to users.

mod engine;
#[cfg(test)]
mod table;

use std::sync::LazyLock;

use foldhash::HashMap;

pub use engine::is_engine_function;

/// The arguments of a method that become part of its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// All of its arguments.
    All,
    /// Those from an index on.
    From(usize),
    /// The first is a key, the second its value.
    Pair,
}

/// The functions that a method calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    Never,
    /// Its first argument, with each item, any number of times.
    Each,
    /// Its first argument, with each item, until the result is decisive.
    Until,
    /// Its first argument, with the result so far and each item.
    Fold,
    /// Its first argument, with two items at a time.
    Order,
    /// Its second argument, with parts of the text.
    Match,
}

/// The result of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gives {
    Undefined,
    /// A primitive value, computed from the receiver and the arguments.
    Computed,
    /// Data computed from these.
    Data,
    /// A list of strings computed from these.
    Texts,
    /// The receiver.
    Itself,
    /// One of its items.
    Part,
    /// A list of its items.
    Parts,
    /// A list of pairs of keys and items.
    Pairs,
    /// The keys.
    Keys,
    /// A list of the results of the calls.
    Mapped,
    /// A list of the items of the lists that the calls return.
    Flat,
    /// The result of the last call.
    Folded,
}

/// What a method does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Method {
    pub(super) takes: Takes,
    pub(super) calls: Calls,
    pub(super) gives: Gives,
    /// Whether it may change the order or the number of the items.
    pub(super) moves: bool,
}

const fn row(takes: Takes, calls: Calls, gives: Gives, moves: bool) -> Method {
    Method { takes, calls, gives, moves }
}

/// The known methods by name: those of arrays, maps, sets, strings, numbers, dates and regular expressions.
const METHODS: &[(&[&str], Method)] = &[
    (&["map"], row(Takes::Nothing, Calls::Each, Gives::Mapped, false)),
    (&["flatMap"], row(Takes::Nothing, Calls::Each, Gives::Flat, false)),
    (&["forEach"], row(Takes::Nothing, Calls::Each, Gives::Undefined, false)),
    (&["filter"], row(Takes::Nothing, Calls::Each, Gives::Parts, false)),
    (&["find", "findLast"], row(Takes::Nothing, Calls::Until, Gives::Part, false)),
    (
        &["findIndex", "findLastIndex", "some", "every"],
        row(Takes::Nothing, Calls::Until, Gives::Computed, false),
    ),
    (&["reduce", "reduceRight"], row(Takes::Nothing, Calls::Fold, Gives::Folded, false)),
    (&["sort"], row(Takes::Nothing, Calls::Order, Gives::Itself, true)),
    (&["toSorted"], row(Takes::Nothing, Calls::Order, Gives::Parts, false)),
    (&["reverse", "copyWithin"], row(Takes::Nothing, Calls::Never, Gives::Itself, true)),
    (&["push"], row(Takes::All, Calls::Never, Gives::Computed, false)),
    (&["unshift"], row(Takes::All, Calls::Never, Gives::Computed, true)),
    (&["pop", "shift"], row(Takes::Nothing, Calls::Never, Gives::Part, true)),
    (&["splice"], row(Takes::From(2), Calls::Never, Gives::Parts, true)),
    (&["fill"], row(Takes::All, Calls::Never, Gives::Itself, false)),
    (&["toSpliced", "with"], row(Takes::Nothing, Calls::Never, Gives::Parts, false)),
    (
        &["slice", "concat", "flat", "toReversed"],
        row(Takes::Nothing, Calls::Never, Gives::Parts, false),
    ),
    (&["at", "get"], row(Takes::Nothing, Calls::Never, Gives::Part, false)),
    (&["values", "toArray"], row(Takes::Nothing, Calls::Never, Gives::Parts, false)),
    (&["entries"], row(Takes::Nothing, Calls::Never, Gives::Pairs, false)),
    (&["keys"], row(Takes::Nothing, Calls::Never, Gives::Keys, false)),
    (&["set"], row(Takes::Pair, Calls::Never, Gives::Itself, false)),
    (&["append"], row(Takes::All, Calls::Never, Gives::Undefined, false)),
    (&["add"], row(Takes::All, Calls::Never, Gives::Itself, false)),
    (&["delete"], row(Takes::Nothing, Calls::Never, Gives::Computed, true)),
    (&["clear"], row(Takes::Nothing, Calls::Never, Gives::Undefined, true)),
    // A regular expression with the flag `g` or `y` stores `lastIndex`.
    (&["test"], row(Takes::All, Calls::Never, Gives::Computed, false)),
    (&["exec"], row(Takes::All, Calls::Never, Gives::Data, false)),
    (&["match"], row(Takes::Nothing, Calls::Never, Gives::Data, false)),
    (&["split", "matchAll"], row(Takes::Nothing, Calls::Never, Gives::Texts, false)),
    (&["replace", "replaceAll"], row(Takes::Nothing, Calls::Match, Gives::Computed, false)),
    (
        &[
            "join",
            "includes",
            "indexOf",
            "lastIndexOf",
            "toString",
            "toLocaleString",
            "valueOf",
            "has",
            "charAt",
            "charCodeAt",
            "codePointAt",
            "startsWith",
            "endsWith",
            "trim",
            "trimStart",
            "trimEnd",
            "padStart",
            "padEnd",
            "repeat",
            "toLowerCase",
            "toUpperCase",
            "toLocaleLowerCase",
            "toLocaleUpperCase",
            "normalize",
            "localeCompare",
            "substring",
            "substr",
            "search",
            "isWellFormed",
            "toWellFormed",
            "toFixed",
            "toPrecision",
            "toExponential",
            "getTime",
            "getFullYear",
            "getMonth",
            "getDate",
            "getDay",
            "getHours",
            "getMinutes",
            "getSeconds",
            "getMilliseconds",
            "getUTCFullYear",
            "getUTCMonth",
            "getUTCDate",
            "getUTCDay",
            "getUTCHours",
            "getUTCMinutes",
            "getUTCSeconds",
            "getUTCMilliseconds",
            "getTimezoneOffset",
            "toISOString",
            "toJSON",
            "toDateString",
            "toTimeString",
            "toLocaleDateString",
            "toLocaleTimeString",
            "toUTCString",
            "hasOwnProperty",
            "propertyIsEnumerable",
            "isPrototypeOf",
            "format",
            "encode",
            "decode",
            "getAll",
        ],
        row(Takes::Nothing, Calls::Never, Gives::Computed, false),
    ),
    (
        &[
            "setTime",
            "setFullYear",
            "setMonth",
            "setDate",
            "setHours",
            "setMinutes",
            "setSeconds",
            "setMilliseconds",
            "setUTCFullYear",
            "setUTCMonth",
            "setUTCDate",
            "setUTCHours",
            "setUTCMinutes",
            "setUTCSeconds",
            "setUTCMilliseconds",
        ],
        row(Takes::All, Calls::Never, Gives::Computed, false),
    ),
];

/// Methods that `solve` follows by special rules.
const FOLLOWED: &[&str] =
    &["then", "catch", "finally", "call", "apply", "bind", "next", "return", "throw"];

/// Functions that call nothing and change nothing: the result is computed from the arguments.
const PURE: &[&str] = &[
    "Number",
    "String",
    "Boolean",
    "BigInt",
    "Symbol",
    "parseInt",
    "parseFloat",
    "isNaN",
    "isFinite",
    "encodeURIComponent",
    "decodeURIComponent",
    "encodeURI",
    "decodeURI",
    "atob",
    "btoa",
    "escape",
    "unescape",
    "Array.isArray",
    "Object.is",
    "Object.hasOwn",
    "Object.isFrozen",
    "Object.isSealed",
    "Object.isExtensible",
    "Date",
    "Date.now",
    "Date.parse",
    "Date.UTC",
    "Symbol.for",
    "performance.now",
    "crypto.randomUUID",
    "String.fromCharCode",
    "String.fromCodePoint",
    "String.raw",
    "RegExp.escape",
    "BigInt.asIntN",
    "BigInt.asUintN",
    "URL.canParse",
    "Error.isError",
    "Intl.getCanonicalLocales",
];

/// Members of the engine's classes that `solve` follows by special rules.
const OFFERED: &[&str] = &[
    "prototype",
    "length",
    "keys",
    "values",
    "entries",
    "fromEntries",
    "getOwnPropertyNames",
    "getPrototypeOf",
    "assign",
    "create",
    "freeze",
    "seal",
    "preventExtensions",
    "from",
    "of",
    "all",
    "allSettled",
    "race",
    "any",
    "resolve",
    "reject",
    "withResolvers",
    "constructor",
    "__proto__",
];

/// Classes whose objects only hold the arguments of their constructor.
const OPAQUE: &[&str] = &[
    "Date",
    "RegExp",
    "URL",
    "URLSearchParams",
    "TextEncoder",
    "TextDecoder",
    "Headers",
    "Intl.DateTimeFormat",
    "Intl.NumberFormat",
    "Intl.Collator",
    "Intl.PluralRules",
    "Intl.ListFormat",
    "Intl.RelativeTimeFormat",
    "Uint8Array",
    "Int8Array",
    "Uint16Array",
    "Int16Array",
    "Uint32Array",
    "Int32Array",
    "Float32Array",
    "Float64Array",
    "Uint8ClampedArray",
    "ArrayBuffer",
    "String",
    "Number",
    "Boolean",
];

/// The globals that every program has.
const GLOBALS: &[&str] = &[
    "mcp",
    "args",
    "globalThis",
    "console",
    "Object",
    "Function",
    "Array",
    "String",
    "Number",
    "Boolean",
    "BigInt",
    "Symbol",
    "Math",
    "JSON",
    "Date",
    "RegExp",
    "Map",
    "Set",
    "WeakMap",
    "WeakSet",
    "Promise",
    "Proxy",
    "Reflect",
    "Error",
    "TypeError",
    "RangeError",
    "SyntaxError",
    "ReferenceError",
    "EvalError",
    "URIError",
    "AggregateError",
    "parseInt",
    "parseFloat",
    "isNaN",
    "isFinite",
    "encodeURIComponent",
    "decodeURIComponent",
    "encodeURI",
    "decodeURI",
    "NaN",
    "Infinity",
    "structuredClone",
    "setTimeout",
    "setInterval",
    "clearTimeout",
    "clearInterval",
    "queueMicrotask",
    "URL",
    "URLSearchParams",
    "TextEncoder",
    "TextDecoder",
    "atob",
    "btoa",
    "crypto",
    "performance",
    "AbortController",
    "AbortSignal",
    "Intl",
    "ArrayBuffer",
    "DataView",
    "Uint8Array",
    "Float64Array",
];

/// Returns whether a function of the engine changes the object that it is given first, or gives access to it.
#[must_use]
pub(super) fn changes_its_argument(name: &str) -> bool {
    matches!(
        name,
        "Object.defineProperty"
            | "Object.defineProperties"
            // The setter of `__proto__` is in a descriptor.
            | "Object.getOwnPropertyDescriptor"
            | "Object.getOwnPropertyDescriptors"
            | "Object.setPrototypeOf"
            | "Reflect.defineProperty"
            | "Reflect.getOwnPropertyDescriptor"
            | "Reflect.deleteProperty"
            | "Reflect.set"
            | "Reflect.setPrototypeOf"
            | "Proxy"
            | "Proxy.revocable"
    )
}

/// Returns whether a global is a class that a program can extend.
pub(super) fn is_class(name: &str) -> bool {
    let is_object = matches!(name, "Math" | "JSON" | "Reflect" | "Intl" | "NaN" | "Infinity");
    // A proxy has no `prototype`, so `extends` fails.
    is_global(name)
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && !is_object
        && name != "Proxy"
}

/// Returns whether a name is a global that every program has; others may not exist.
pub(super) fn is_global(name: &str) -> bool {
    GLOBALS.contains(&name)
}

/// Returns the row of a known method, and the name of the row, which is the first name in it.
pub(super) fn method(name: &str) -> Option<(&'static str, &'static Method)> {
    static BY_NAME: LazyLock<HashMap<&str, (&str, &Method)>> = LazyLock::new(|| {
        let rows = METHODS.iter();
        rows.flat_map(|(names, method)| {
            let row = names.first().copied().unwrap_or_default();
            names.iter().map(move |name| (*name, (row, method)))
        })
        .collect()
    });
    BY_NAME.get(name).copied()
}

/// Returns the rows of the table of methods, by their first names.
pub(super) fn rows() -> impl Iterator<Item = (&'static str, &'static Method)> {
    METHODS.iter().map(|(names, method)| (names.first().copied().unwrap_or_default(), method))
}

/// Returns whether a name is that of a method of the engine's arrays, strings and similar.
pub(super) fn is_method(name: &str) -> bool {
    method(name).is_some() || FOLLOWED.contains(&name) || name.starts_with("@@")
}

/// Returns whether a name is that of a method that every object has.
pub(super) fn is_of_objects(name: &str) -> bool {
    matches!(
        name,
        "toString"
            | "valueOf"
            | "toLocaleString"
            | "hasOwnProperty"
            | "isPrototypeOf"
            | "propertyIsEnumerable"
    )
}

/// Returns whether a function calls nothing and changes nothing.
pub(super) fn is_pure(name: &str) -> bool {
    PURE.contains(&name)
        || name.starts_with("Math.")
        || name.starts_with("Number.")
        || name.starts_with("console.")
}

/// Returns whether the engine has a function by a name whose behaviour is known.
pub(super) fn is_offered(name: &str) -> bool {
    let is_last = |full: &&str| full.rsplit('.').next() == Some(name);
    is_method(name) || is_of_objects(name) || PURE.iter().any(is_last) || OFFERED.contains(&name)
}

/// Returns whether the objects of a class only hold the arguments of its constructor.
pub(super) fn is_opaque(name: &str) -> bool {
    OPAQUE.contains(&name)
}

/// Returns whether a class is an error class.
pub(super) fn is_error(name: &str) -> bool {
    matches!(
        name,
        "Error"
            | "TypeError"
            | "RangeError"
            | "SyntaxError"
            | "ReferenceError"
            | "EvalError"
            | "URIError"
            | "AggregateError"
    )
}

/// Returns whether the prototype of an object has only methods.
pub(super) fn is_prototype_only(name: &str) -> bool {
    name.ends_with(".prototype")
}
