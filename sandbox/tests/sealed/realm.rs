//! The globals of a program.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::{failure, trials, value};

trials![
    the_surface_equals_its_list,
    text_never_becomes_code,
    dangerous_globals_are_absent,
    absent_globals_explain_the_alternative,
    mcp_cannot_be_changed,
    conversions_never_call_a_tool,
    changed_builtins_affect_only_their_program,
    array_iteration_cannot_be_replaced,
    text_and_bytes,
    urls,
    url_search_params,
    structured_clones,
    abort_signals,
    dates,
    english_formats_equal_those_of_node,
    other_locales_are_refused,
];

/// SB-01: everything that can be reached by name or by syntax is listed in `surface.txt`.
async fn the_surface_equals_its_list() {
    let seen = value(include_str!("surface.js")).await;
    let seen = seen.as_str().expect("a text");
    let seen_lines: BTreeSet<&str> = seen.lines().collect();
    let known: BTreeSet<&str> = include_str!("surface.txt").lines().collect();
    if seen_lines != known {
        let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/surface.txt");
        std::fs::write(file, format!("{seen}\n")).expect("the folder for such files");
        let new: Vec<_> = seen_lines.difference(&known).take(40).collect();
        let gone: Vec<_> = known.difference(&seen_lines).take(40).collect();
        panic!(
            "the surface has changed; if that is intended, copy {file}\nnew: {new:#?}\ngone: {gone:#?}"
        );
    }
}

async fn text_never_becomes_code() {
    for source in [
        "return eval('1')",
        "return (0, eval)('1')",
        "return new Function('return 1')()",
        "return Function('return 1')()",
        "return (() => {}).constructor('return 1')()",
        "return (async () => {}).constructor('return 1')()",
        "return (function* () {}).constructor('return 1')().next()",
        "return (async function* () {}).constructor('return 1')().next()",
        "return Object.getPrototypeOf(async () => {}).constructor('return 1')()",
        "return [].filter.constructor('return 1')()",
        "return [].constructor.constructor('return 1')()",
        "return mcp.test.echo.constructor('return 1')()",
        "return console.log.constructor('return 1')()",
        "return setTimeout.constructor('return 1')()",
        "return Date.constructor('return 1')()",
        "return class extends Function {}.constructor('return 1')()",
        "return new (class extends Function {})('return 1')()",
        "return Reflect.construct(Function, ['return 1'])()",
        "return Reflect.construct(Object, [], Function).constructor('return 1')()",
        "delete globalThis.eval; globalThis.eval = 1; return eval('1')",
        "return setTimeout('globalThis.x = 1', 1)",
    ] {
        let failure = failure(source).await;
        assert!(
            ["EvalError", "TypeError"].contains(&failure.name.as_str()),
            "{source}\n{failure:#?}"
        );
    }
    let import = "try { await import('std') } catch (e) { return e.name }";
    assert_eq!(value(import).await, json!("ReferenceError"));
    let stack =
        "Error.prepareStackTrace = (e, frames) => frames; return typeof new Error('x').stack";
    assert_eq!(value(stack).await, json!("string"));
}

async fn dangerous_globals_are_absent() {
    let source = r#"
        const names = ["SharedArrayBuffer", "Atomics", "WeakRef", "FinalizationRegistry", "performance",
            "std", "os", "bjs", "print", "gc", "navigator", "WebAssembly", "Worker", "load", "loadScript", "scriptArgs"];
        return names.filter((name) => name in globalThis);
    "#;
    assert_eq!(value(source).await, json!([]));
    let expected = json!([
        "AbortController",
        "AbortSignal",
        "AggregateError",
        "Array",
        "ArrayBuffer",
        "AsyncDisposableStack",
        "BigInt",
        "BigInt64Array",
        "BigUint64Array",
        "Boolean",
        "Buffer",
        "DOMException",
        "DataView",
        "Date",
        "Deno",
        "DisposableStack",
        "Error",
        "EvalError",
        "Float16Array",
        "Float32Array",
        "Float64Array",
        "Function",
        "Infinity",
        "Int16Array",
        "Int32Array",
        "Int8Array",
        "InternalError",
        "Intl",
        "Iterator",
        "JSON",
        "Map",
        "Math",
        "NaN",
        "Number",
        "Object",
        "Promise",
        "Proxy",
        "RangeError",
        "ReferenceError",
        "Reflect",
        "RegExp",
        "Set",
        "String",
        "SuppressedError",
        "Symbol",
        "SyntaxError",
        "TextDecoder",
        "TextEncoder",
        "TypeError",
        "URIError",
        "URL",
        "URLSearchParams",
        "Uint16Array",
        "Uint32Array",
        "Uint8Array",
        "Uint8ClampedArray",
        "WeakMap",
        "WeakSet",
        "args",
        "atob",
        "btoa",
        "clearInterval",
        "clearTimeout",
        "console",
        "crypto",
        "decodeURI",
        "decodeURIComponent",
        "encodeURI",
        "encodeURIComponent",
        "escape",
        "eval",
        "fetch",
        "globalThis",
        "isFinite",
        "isNaN",
        "mcp",
        "parseFloat",
        "parseInt",
        "process",
        "queueMicrotask",
        "require",
        "setInterval",
        "setTimeout",
        "structuredClone",
        "undefined",
        "unescape"
    ]);
    assert_eq!(value("return Object.getOwnPropertyNames(globalThis).sort()").await, expected);
}

async fn absent_globals_explain_the_alternative() {
    for (source, name) in [
        ("await fetch('https://example.com')", "fetch"),
        ("require('fs')", "require"),
        ("process.env.HOME", "process"),
        ("await Deno.readTextFile('x')", "Deno"),
        ("Buffer.from('x')", "Buffer"),
        ("new Buffer('x')", "Buffer"),
    ] {
        let failure = failure(source).await;
        assert_eq!(failure.name, "TypeError", "{source}");
        assert!(
            failure.message.starts_with(&format!("`{name}` is not available: ")),
            "{}",
            failure.message
        );
        assert!(failure.message.contains("mcp.<namespace>.<action>"), "{}", failure.message);
        assert_eq!(failure.line, Some(1), "{source}");
    }
}

async fn mcp_cannot_be_changed() {
    for source in [
        "mcp = 1",
        "delete globalThis.mcp",
        "Object.defineProperty(globalThis, 'mcp', { value: 1 })",
        "mcp.test = 1",
        "mcp.test.echo = 1",
        "delete mcp.test.echo",
        "Object.setPrototypeOf(mcp, {})",
        "mcp.test.echo.x = 1",
        "Object.defineProperty(mcp.test, 'echo', { value: 1 })",
    ] {
        assert_eq!(failure(source).await.name, "TypeError", "{source}");
    }
    let same = "return [mcp.test === mcp.test, mcp.test.echo === mcp.test.echo, Object.isFrozen(mcp), 'test' in mcp, Object.keys(mcp)]";
    assert_eq!(value(same).await, json!([true, true, true, true, []]));
    let odd = "return await mcp['sequential-thinking'].x({}).catch((e) => e.message)";
    assert_eq!(value(odd).await, json!("no tool sequential-thinking:x"));
}

async fn conversions_never_call_a_tool() {
    let source = r#"
        const seen = [JSON.stringify(mcp.test), JSON.stringify({ mcp }), await mcp.test === mcp.test];
        try { seen.push(`${mcp.test}`) } catch (e) { seen.push(e.name) }
        try { seen.push(mcp.test + 1) } catch (e) { seen.push(e.name) }
        return seen;
    "#;
    let outcome = crate::support::run(source).await;
    assert_eq!(outcome.result, Ok(json!(["{}", "{\"mcp\":{}}", true, "TypeError", "TypeError"])));
    assert_eq!(outcome.calls, 0);
}

async fn changed_builtins_affect_only_their_program() {
    let source = r#"
        Object.prototype.toJSON = undefined;
        JSON.stringify = () => '{"forged":1}';
        Promise = class {}; Error = 1; Object = 1; Reflect = 1; Proxy = 1;
        try { Array.prototype[Symbol.iterator] = null } catch {}
        Map.prototype.get = () => 1;
        const answer = await mcp.test.echo({ real: 1 });
        return answer;
    "#;
    assert_eq!(value(source).await, json!({"real": 1}));
}

/// The analysis follows `for (const x of ["a", "b"])` and `["a", "b"].map(…)`, so these built-ins cannot be replaced;
/// an array's own fields and subclasses can.
async fn array_iteration_cannot_be_replaced() {
    for source in [
        "Array.prototype.map = () => 1",
        "Object.getPrototypeOf([])[Symbol.iterator] = function* () {}",
        "Object.defineProperty([].__proto__, 'forEach', { value: () => 1 })",
        "Object.assign(Array.prototype, { find: () => 1 })",
        "Array.prototype.__defineGetter__('some', () => 1)",
        "delete Array.prototype.filter",
        "Object.getPrototypeOf([][Symbol.iterator]()).next = () => ({ done: true })",
    ] {
        assert_eq!(failure(source).await.name, "TypeError", "{source}");
    }
    let source = r#"
        class Twice extends Array { map(f) { return super.map((x) => f(f(x))) } }
        Array.prototype.sum = function () { return this.reduce((a, b) => a + b, 0) };
        return [...Twice.of(1, 2).map((x) => x + 1), [1, 2].sum()];
    "#;
    assert_eq!(value(source).await, json!([3, 4, 3]));
}

async fn text_and_bytes() {
    let source = r#"
        const code = (f) => { try { return f() } catch (e) { return e.name } };
        const bytes = new TextEncoder().encode("é😀\ud800");
        const round = new TextDecoder().decode(bytes);
        let fatal; try { new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array([0xff])) } catch (e) { fatal = e.name }
        const part = new TextDecoder().decode(new Uint8Array([0x41, 0x42, 0x43]).subarray(1));
        let label; try { new TextDecoder("latin1") } catch (e) { label = e.name }
        const mark = new TextDecoder().decode(new Uint8Array([0xef, 0xbb, 0xbf, 0x41]));
        return [[...bytes], round, fatal, part, label, mark, btoa("hello\u00ff"), atob(" aGVs bG8"), code(() => btoa("\u0100")), code(() => atob("*"))];
    "#;
    assert_eq!(
        value(source).await,
        json!([
            [195, 169, 240, 159, 152, 128, 239, 191, 189],
            "é😀\u{fffd}",
            "TypeError",
            "BC",
            "RangeError",
            "A",
            "aGVsbG//",
            "hello",
            "InvalidCharacterError",
            "InvalidCharacterError"
        ])
    );
}

async fn urls() {
    let source = r#"
        const u = new URL("../b?x=1&y=%20#frag", "https://user:pw@Example.com:8443/a/c/");
        const before = [u.href, u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname, u.search, u.hash];
        u.searchParams.append("z", "a b");
        u.pathname = "/new path";
        u.port = "443";
        u.hash = "";
        return [before, u.href, u.searchParams.get("y"), JSON.stringify({ u }), URL.canParse("nope"), String(new URL("http://münchen.de/"))];
    "#;
    assert_eq!(
        value(source).await,
        json!([
            [
                "https://user:pw@example.com:8443/a/b?x=1&y=%20#frag",
                "https://example.com:8443",
                "https:",
                "user",
                "pw",
                "example.com:8443",
                "example.com",
                "8443",
                "/a/b",
                "?x=1&y=%20",
                "#frag"
            ],
            "https://user:pw@example.com/new%20path?x=1&y=+&z=a+b",
            " ",
            r#"{"u":"https://user:pw@example.com/new%20path?x=1&y=+&z=a+b"}"#,
            false,
            "http://xn--mnchen-3ya.de/"
        ])
    );
    let bad = failure("new URL('nope')").await;
    assert_eq!(
        (bad.name.as_str(), bad.message.as_str()),
        ("TypeError", "\"nope\" is not a valid address")
    );
}

async fn url_search_params() {
    let source = r#"
        const q = new URLSearchParams({ b: "2", a: "1" });
        q.append("b", "3 & 4");
        const all = [q.toString(), q.getAll("b"), q.has("a"), q.get("none"), q.size];
        q.sort(); q.set("b", "x"); q.delete("a");
        return [...all, q.toString(), [...new URLSearchParams("?k=v&k=w%2B")], [...new URLSearchParams([["m", "n"]]).keys()]];
    "#;
    assert_eq!(
        value(source).await,
        json!([
            "b=2&a=1&b=3+%26+4",
            ["2", "3 & 4"],
            true,
            null,
            3,
            "b=x",
            [["k", "v"], ["k", "w+"]],
            ["m"]
        ])
    );
}

async fn structured_clones() {
    let source = r#"
        const original = { d: new Date(0), m: new Map([[1, { x: 1 }]]), s: new Set([1]), r: /a/gi, b: new Uint8Array([1, 2]), e: new RangeError("no"), list: [1, , 3] };
        original.self = original;
        const copy = structuredClone(original);
        copy.m.get(1).x = 2;
        const refused = [];
        for (const value of [() => {}, Symbol(), { f() {} }, Promise.resolve()]) {
            try { structuredClone(value); refused.push("cloned") } catch (e) { refused.push(e.name) }
        }
        return [copy.d.getTime(), original.m.get(1).x, copy.s.has(1), String(copy.r), [...copy.b], copy.e instanceof RangeError, copy.self === copy, 1 in copy.list, refused];
    "#;
    let expected = json!([
        0,
        1,
        true,
        "/a/gi",
        [1, 2],
        true,
        true,
        false,
        ["DataCloneError", "DataCloneError", "DataCloneError", "DataCloneError"]
    ]);
    assert_eq!(value(source).await, expected);
}

async fn abort_signals() {
    let source = r#"
        const controller = new AbortController();
        const seen = [];
        controller.signal.addEventListener("abort", (event) => seen.push(event.type, event.target === controller.signal));
        controller.signal.onabort = () => seen.push("on");
        controller.abort(); controller.abort();
        let reason; try { controller.signal.throwIfAborted() } catch (e) { reason = e.name }
        const timeout = AbortSignal.timeout(5);
        const any = AbortSignal.any([timeout, new AbortController().signal]);
        await new Promise((done) => any.addEventListener("abort", done));
        return [seen, controller.signal.aborted, reason, any.reason.name, AbortSignal.abort("why").reason];
    "#;
    assert_eq!(
        value(source).await,
        json!([["on", "abort", true], true, "AbortError", "TimeoutError", "why"])
    );
}

async fn dates() {
    let source = r#"
        const d = new Date(2024, 0, 31, 12);
        class Own extends Date { year() { return this.getFullYear() } }
        return [d.toISOString(), d instanceof Date, typeof Date(), new Own(0).year(), new Own() instanceof Own,
            Date.UTC(2024, 0), Number.isNaN(new Date("2024-02-30x").getTime()), d.getTimezoneOffset(), d.constructor === Date,
            d.toLocaleString() !== "", Number.isInteger(Date.now()), Math.abs(new Date() - Date.now()) < 1000];
    "#;
    assert_eq!(
        value(source).await,
        json!([
            "2024-01-31T12:00:00.000Z",
            true,
            "string",
            1970,
            true,
            1_704_067_200_000u64,
            true,
            0,
            true,
            true,
            true,
            true
        ])
    );
}

/// `locale.txt` has the output of Node with full ICU data.
async fn english_formats_equal_those_of_node() {
    let cases: Vec<(&str, &str)> = include_str!("locale.txt")
        .lines()
        .map(|line| line.split_once('\t').expect("an expression and its value"))
        .collect();
    let list: Vec<&str> = cases.iter().map(|(expression, _)| *expression).collect();
    let seen = value(&format!("return [{}]", list.join(",\n"))).await;
    for ((expression, expected), seen) in cases.iter().zip(seen.as_array().expect("a list")) {
        let expected: serde_json::Value = serde_json::from_str(expected).expect("JSON");
        assert_eq!(*seen, expected, "{expression}");
    }
}

/// Unknown locales and options are refused.
async fn other_locales_are_refused() {
    for source in [
        "(1).toLocaleString('de-DE')",
        "(1).toLocaleString(['fr', 'en'])",
        "(1).toLocaleString('en', { style: 'unit', unit: 'liter' })",
        "(1).toLocaleString('en', { style: 'currency', currency: 'XXX' })",
        "(1).toLocaleString('en', { notation: 'compact' })",
        "new Date(0).toLocaleString('en-GB')",
        "new Date(0).toLocaleString('en-US', { timeZone: 'America/New_York' })",
        "new Date(0).toLocaleString('en-US', { era: 'short' })",
        "new Date(0).toLocaleDateString('en-US', { year: 'numeric', day: 'numeric' })",
        "new Intl.Collator('sv')",
        "'ä'.localeCompare('z', 'sv')",
        "'日'.localeCompare('本')",
        "'i'.toLocaleUpperCase('tr')",
        "new Intl.PluralRules('ar')",
    ] {
        let failure = failure(source).await;
        assert_eq!(failure.name, "RangeError", "{source}\n{failure:#?}");
        assert!(failure.message.contains("is not known here"), "{source}\n{failure:#?}");
    }
    let absent = failure("new Intl.RelativeTimeFormat('en')").await;
    assert!(absent.message.contains("`Intl.RelativeTimeFormat` is not available"), "{absent:#?}");
}
