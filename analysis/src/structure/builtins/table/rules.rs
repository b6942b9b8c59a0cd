//! Functions that the solver follows by rules of its own, in words. The tables of `builtins` do not
//! have them: their results are more than one row can say.

/// Functions that are followed alike.
pub(super) struct Rule {
    pub(super) names: &'static [&'static str],
    /// A call of one of them, for `NAME`, with arguments that lead nowhere.
    pub(super) call: &'static str,
    /// How the page shows them, for `NAME`.
    pub(super) shown: &'static str,
    pub(super) result: &'static str,
    pub(super) changes: &'static str,
    pub(super) calls: &'static str,
}

const fn rule(
    names: &'static [&'static str],
    (call, shown): (&'static str, &'static str),
    result: &'static str,
    changes: &'static str,
    calls: &'static str,
) -> Rule {
    Rule { names, call, shown, result, changes, calls }
}

const NONE: &str = "nothing";

pub(super) const RULES: &[Rule] = &[
    rule(
        &["Reflect.apply"],
        ("NAME((x) => x, null, [1])", "NAME"),
        "what the function returns",
        "what the function changes",
        "the function, once, with the items of the list",
    ),
    rule(
        &["JSON.parse", "structuredClone"],
        ("NAME('1')", "NAME"),
        "data from everything in the argument",
        NONE,
        "nothing; with a second argument or a function it counts as unknown code",
    ),
    rule(
        &["JSON.stringify"],
        ("NAME({ a: 1 })", "NAME"),
        "everything in the argument, and what `toJSON` returns in its place",
        NONE,
        "each `toJSON` and getter in it; with a replacer function it counts as unknown code",
    ),
    rule(
        &["Object.keys", "Object.getOwnPropertyNames"],
        ("NAME({ a: 1 })", "NAME"),
        "a list of the names of the fields, and what decides which fields there are",
        NONE,
        NONE,
    ),
    rule(
        &["Object.values", "Object.entries"],
        ("NAME({ a: 1 })", "NAME"),
        "a list of the fields: each by itself if all of them are known, otherwise mixed",
        NONE,
        "getters of the object",
    ),
    rule(
        &["Object.fromEntries"],
        ("NAME([['a', 1]])", "NAME"),
        "a new object with the pairs as its fields",
        NONE,
        NONE,
    ),
    rule(
        &["Object.assign"],
        ("NAME({}, { a: 1 })", "NAME"),
        "the first argument itself",
        "the fields of the other arguments go into the first",
        "getters of the others, setters of the first",
    ),
    rule(
        &["Object.freeze", "Object.seal", "Object.preventExtensions"],
        ("NAME({})", "NAME"),
        "the argument itself",
        "nothing; where a result decides whether the call is made, it counts as unknown code",
        NONE,
    ),
    rule(
        &["Object.create"],
        ("NAME({})", "NAME"),
        "a new object that inherits from the argument",
        NONE,
        "nothing; with a second argument it counts as unknown code",
    ),
    rule(
        &["Array.from"],
        ("NAME([1])", "NAME"),
        "a list of the items, or of what the calls return",
        NONE,
        "the second argument, for each item",
    ),
    rule(&["Array.of"], ("NAME(1)", "NAME"), "a list of the arguments", NONE, NONE),
    rule(
        &["Array"],
        ("new NAME(1, 2)", "new NAME"),
        "a list of the arguments; with one argument, a list as long as it says",
        NONE,
        NONE,
    ),
    rule(
        &["Map", "Set", "WeakMap", "WeakSet"],
        ("new NAME()", "new NAME"),
        "a new object that holds the items of the argument",
        NONE,
        NONE,
    ),
    rule(
        &[
            "Error",
            "TypeError",
            "RangeError",
            "SyntaxError",
            "ReferenceError",
            "EvalError",
            "URIError",
            "AggregateError",
        ],
        ("new NAME('x')", "new NAME"),
        "a new object with the message and the cause",
        NONE,
        NONE,
    ),
    rule(
        &["Promise.resolve", "Promise.reject"],
        ("NAME(1)", "NAME"),
        "a promise that ends with the argument",
        NONE,
        NONE,
    ),
    rule(
        &["Promise.all"],
        ("NAME([1])", "NAME"),
        "a promise for a list of what the promises give: each by itself if all of them are known, otherwise mixed; \
         it fails by what any of them fails by",
        NONE,
        NONE,
    ),
    rule(
        &["Promise.allSettled"],
        ("NAME([1])", "NAME"),
        "a promise for a list of outcomes; whether one failed is in its outcome",
        NONE,
        NONE,
    ),
    rule(
        &["Promise.race", "Promise.any"],
        ("NAME([1])", "NAME"),
        "a promise for what any of the promises gives",
        NONE,
        NONE,
    ),
    rule(
        &["Promise.withResolvers"],
        ("NAME()", "NAME"),
        "a promise, and two functions that end it with their argument",
        NONE,
        NONE,
    ),
    rule(
        &["Promise"],
        ("new NAME(() => 1)", "new NAME"),
        "a promise that ends with what its two functions are given",
        NONE,
        "the argument, once, with two functions that end the promise",
    ),
    rule(
        &["then", "catch", "finally"],
        ("Promise.resolve(1).NAME(() => 1)", "NAME"),
        "a promise for what the calls return, or for what they were not called with",
        NONE,
        "an argument, once; what decides whether the promise fails decides which",
    ),
    rule(
        &["setTimeout", "setInterval", "queueMicrotask"],
        ("NAME(() => 1, 1)", "NAME"),
        "a number that depends on nothing",
        NONE,
        "the first argument, later; `setInterval` any number of times; what decides on a `clear…` decides on it",
    ),
    rule(
        &["clearTimeout", "clearInterval"],
        ("NAME(1)", "NAME"),
        "`undefined`",
        "whether the calls of every timer are made",
        NONE,
    ),
    rule(
        &["call", "apply"],
        ("((x) => x).NAME(null)", "NAME"),
        "what the function returns",
        NONE,
        "the function, once, with the `this` and the arguments that are given",
    ),
    rule(
        &["bind"],
        ("((x) => x).NAME(null)", "NAME"),
        "a function that holds the `this` and the arguments that are given",
        NONE,
        NONE,
    ),
    rule(
        &["next", "return", "throw"],
        ("[1].values().NAME()", "NAME"),
        "one of the values; which, by all places that ask the same iterator",
        "how far the iterator is",
        "the code of a generator, as far as somebody asks for its values",
    ),
];

/// What may or may not be followed, and a call of it: the page names those that are not.
pub(super) const OTHERS: &[(&str, &str)] = &[
    ("Object.defineProperty", "Object.defineProperty({}, 'a', { value: 1 })"),
    ("Object.defineProperties", "Object.defineProperties({}, {})"),
    ("Object.getOwnPropertyDescriptor", "Object.getOwnPropertyDescriptor({}, 'a')"),
    ("Object.getOwnPropertyDescriptors", "Object.getOwnPropertyDescriptors({})"),
    ("Object.getOwnPropertySymbols", "Object.getOwnPropertySymbols({})"),
    ("Object.getPrototypeOf", "Object.getPrototypeOf({})"),
    ("Object.setPrototypeOf", "Object.setPrototypeOf({}, {})"),
    ("Object.groupBy", "Object.groupBy([1], (x) => x)"),
    ("Map.groupBy", "Map.groupBy([1], (x) => x)"),
    ("Array.fromAsync", "Array.fromAsync([1])"),
    ("Promise.try", "Promise.try(() => 1)"),
    ("Iterator.from", "Iterator.from([1])"),
    ("Reflect.apply", "Reflect.apply((x) => x, null, [])"),
    ("Reflect.construct", "Reflect.construct(Array, [])"),
    ("Reflect.defineProperty", "Reflect.defineProperty({}, 'a', {})"),
    ("Reflect.deleteProperty", "Reflect.deleteProperty({}, 'a')"),
    ("Reflect.get", "Reflect.get({}, 'a')"),
    ("Reflect.getPrototypeOf", "Reflect.getPrototypeOf({})"),
    ("Reflect.has", "Reflect.has({}, 'a')"),
    ("Reflect.ownKeys", "Reflect.ownKeys({})"),
    ("Reflect.set", "Reflect.set({}, 'a', 1)"),
    ("crypto.getRandomValues", "crypto.getRandomValues([1])"),
    ("new AbortController", "new AbortController()"),
    ("new DataView", "new DataView(1)"),
    ("new Proxy", "new Proxy({}, {})"),
    ("Iterator.prototype.take", "[1].values().take(1)"),
    ("Iterator.prototype.drop", "[1].values().drop(1)"),
    ("Set.prototype.union", "new Set().union(new Set())"),
    ("TypedArray.prototype.subarray", "new Uint8Array(1).subarray(1)"),
];
