//! What the engine's own functions do, as data.
//!
//! A row is a proven rule. What has no row is unknown code: what it gives depends on all that it can
//! reach, it may change all of that, call any function in it, and fail. `docs/builtins.md` tells the
//! rows to users.

mod engine;
#[cfg(test)]
mod table;

use std::sync::LazyLock;

use foldhash::HashMap;

pub use engine::is_engine_function;

/// What a method is given that becomes a part of what it is called on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// All of its arguments.
    All,
    /// Those from a place on.
    From(usize),
    /// The first is a key, the second what stands under it.
    Pair,
}

/// What a method calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    Never,
    /// Its first argument, with each item, any number of times.
    Each,
    /// Its first argument, with each item, until what it gives is enough.
    Until,
    /// Its first argument, with the result so far and each item.
    Fold,
    /// Its first argument, with two items at a time.
    Order,
    /// Its second argument, with parts of the text.
    Match,
}

/// What a method gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gives {
    Undefined,
    /// A text, a number or the like, made of all it is called on and given.
    Computed,
    /// Data made of that.
    Data,
    /// A list of texts made of that.
    Texts,
    /// What it is called on.
    Itself,
    /// One of its items.
    Part,
    /// A list of its items.
    Parts,
    /// A list of pairs of keys and items.
    Pairs,
    /// The keys.
    Keys,
    /// A list of what the calls gave.
    Mapped,
    /// A list of what is in the lists that the calls gave.
    Flat,
    /// What the last call gave.
    Folded,
}

/// What a method does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Method {
    pub(super) takes: Takes,
    pub(super) calls: Calls,
    pub(super) gives: Gives,
    /// Whether the order or the number of the items may be another afterwards.
    pub(super) moves: bool,
}

const fn row(takes: Takes, calls: Calls, gives: Gives, moves: bool) -> Method {
    Method { takes, calls, gives, moves }
}

/// The methods that are known, by name: those of lists, maps, sets, texts, numbers, dates and patterns.
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
    // A pattern remembers where it stopped.
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

/// Methods that are followed by rules of their own.
const FOLLOWED: &[&str] =
    &["then", "catch", "finally", "call", "apply", "bind", "next", "return", "throw"];

/// Functions of the engine that call nothing and change nothing: what they give is made of what they are given.
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

/// What of the engine's classes is followed by rules of its own.
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

/// Classes of the engine whose objects only hold what they are given.
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

/// Names that every program has.
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

/// Returns whether a name is one that every program has; others may not be there.
pub(super) fn is_global(name: &str) -> bool {
    GLOBALS.contains(&name)
}

/// Returns what a method does, if it is known.
///
/// With it comes the name of its row, which is the first in it.
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

/// Returns whether a name is that of a method of the engine's lists, texts and the like.
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

/// Returns whether the engine offers something by a name, of which it is known what it does.
pub(super) fn is_offered(name: &str) -> bool {
    let is_last = |full: &&str| full.rsplit('.').next() == Some(name);
    is_method(name) || is_of_objects(name) || PURE.iter().any(is_last) || OFFERED.contains(&name)
}

/// Returns whether objects of a class only hold what they are given.
pub(super) fn is_opaque(name: &str) -> bool {
    OPAQUE.contains(&name)
}

/// Returns whether a class is one of those of errors.
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

/// Returns whether what an object has above it are methods alone.
pub(super) fn is_prototype_only(name: &str) -> bool {
    name.ends_with(".prototype")
}
