//! Results: promises in them are awaited, values without a JSON form are refused, and a program without `return` ends
//! when everything that it started has ended.

use std::sync::Arc;

use sandbox::{FailureKind, Limits, Outcome, Program};
use serde_json::{Value, json};

use crate::support::{failure, run, run_with, trials, value};

trials![
    promises_in_a_result_are_awaited,
    a_rejected_promise_in_a_result_fails_the_run,
    values_without_a_json_form_are_refused_with_their_path,
    values_with_an_obvious_json_form_are_serialized,
    arguments_are_refused_with_their_path,
    hostile_values_are_bounded,
    undefined_is_distinguished_from_null,
    a_program_without_return_waits_for_what_it_started,
    answers_that_arrive_together_are_all_delivered,
    an_implicit_result_that_is_invalid_is_a_warning,
    a_program_without_return_fails_on_an_unhandled_rejection,
    an_unhandled_rejection_is_printed,
    positions_ignore_inserted_returns,
];

async fn promises_in_a_result_are_awaited() {
    for (source, expected) in [
        ("return [1, 2].map((n) => mcp.test.echo({ n }))", json!([{ "n": 1 }, { "n": 2 }])),
        ("return { a: { b: [mcp.test.id({}), 2] } }", json!({ "a": { "b": [1, 2] } })),
        (
            "return [Promise.resolve([Promise.resolve({ x: mcp.test.id({}) })])]",
            json!([[{ "x": 1 }]]),
        ),
        (
            "return { at: Promise.resolve(new Date(0)) }",
            json!({ "at": "1970-01-01T00:00:00.000Z" }),
        ),
        ("const p = mcp.test.id({}); return [p, p]", json!([1, 1])),
        ("return [Promise.resolve(undefined), Promise.resolve(null)]", json!([null, null])),
    ] {
        assert_eq!(value(source).await, expected, "{source}");
    }
}

async fn a_rejected_promise_in_a_result_fails_the_run() {
    let failed = failure("return {\n  a: [mcp.test.fail({})] }").await;
    assert_eq!(failed.kind, FailureKind::Exception);
    assert_eq!(
        (failed.message.as_str(), failed.line),
        ("the tool said no", Some(2)),
        "{failed:#?}"
    );
    let wrong = failure("return [Promise.resolve(1), Promise.resolve(new Map())]").await;
    assert_eq!(wrong.kind, FailureKind::ResultNotSerializable);
    assert!(wrong.message.starts_with("`result[1]` is a Map"), "{}", wrong.message);
}

async fn values_without_a_json_form_are_refused_with_their_path() {
    for (source, expected) in [
        ("return { items: [{ price: 1 }, { price: 0 / 0 }] }", "`result.items[1].price` is NaN"),
        ("return [1 / 0]", "`result[0]` is Infinity"),
        ("return new Map([['a', 1]])", "`result` is a Map"),
        ("return { seen: new Set([1]) }", "`result.seen` is a Set"),
        ("return () => 1", "`result` is a function"),
        ("return { 'a b': Symbol('x') }", "`result[\"a b\"]` is a symbol"),
        ("return { n: 12n }", "`result.n` is the BigInt 12n"),
        (
            "const a = { b: {} }; a.b.c = a; return a",
            "`result.b.c` is an object that contains itself",
        ),
        (
            "const e = new Error('x'); e.cause = e; return e",
            "`result.cause` is an object that contains itself",
        ),
        ("return { re: /a/g }", "`result.re` is a regular expression"),
        ("return new Uint8Array([1])", "`result` is binary data"),
        ("return [new ArrayBuffer(2)]", "`result[0]` is binary data"),
        ("return new Map([[1, 2]]).values()", "`result` is an iterator"),
        ("return (function* () { yield 1 })()", "`result` is an iterator"),
        ("return (async function* () { yield 1 })()", "`result` is an asynchronous iterator"),
        ("return { w: new WeakMap() }", "`result.w` is an object of WeakMap without fields"),
        (
            "class Cart { #items = [1] } return new Cart()",
            "`result` is an object of Cart without fields",
        ),
        ("return { at: new Date('x') }", "`result.at` is an invalid Date"),
        ("return { tool: mcp.test.echo }", "`result.tool` is a tool"),
        ("return { mcp }", "`result.mcp` is a part of `mcp`"),
        (
            "return new URLSearchParams('a=1')",
            "`result` is an object of URLSearchParams without fields",
        ),
    ] {
        let failed = failure(source).await;
        assert_eq!(failed.kind, FailureKind::ResultNotSerializable, "{source}\n{failed:#?}");
        assert!(failed.message.starts_with(expected), "{source}\n{}", failed.message);
    }
}

async fn values_with_an_obvious_json_form_are_serialized() {
    for (source, expected) in [
        ("return { a: undefined, b: [undefined, , 1] }", json!({ "b": [null, null, 1] })),
        (
            "return [-0, new Number(1), new String('s'), new Boolean(true)]",
            json!([0, 1, "s", true]),
        ),
        (
            "return { at: new Date(0), url: new URL('http://a/b') }",
            json!({ "at": "1970-01-01T00:00:00.000Z", "url": "http://a/b" }),
        ),
        ("return new TypeError('no')", json!({ "name": "TypeError", "message": "no" })),
        (
            "return (await Promise.allSettled([mcp.test.fail({}), mcp.test.id({})]))",
            json!([
                { "status": "rejected", "reason": { "name": "ToolError", "message": "the tool said no", "code": "NO" } },
                { "status": "fulfilled", "value": 2 },
            ]),
        ),
        (
            "return { error: new Error('a', { cause: new RangeError('b') }) }",
            json!({ "error": { "name": "Error", "message": "a", "cause": { "name": "RangeError", "message": "b" } } }),
        ),
        (
            "return new AggregateError([new Error('x')], 'all')",
            json!({ "name": "AggregateError", "message": "all", "errors": [{ "name": "Error", "message": "x" }] }),
        ),
        (
            "class P { constructor() { this.x = 1 } get y() { return 2 } } return new P()",
            json!({ "x": 1 }),
        ),
        (
            "return Object.groupBy([1, 2], (n) => n % 2 ? 'odd' : 'even')",
            json!({ "odd": [1], "even": [2] }),
        ),
        ("const shared = { a: 1 }; return [shared, shared]", json!([{ "a": 1 }, { "a": 1 }])),
        ("return new Proxy({ a: 1 }, {})", json!({ "a": 1 })),
    ] {
        assert_eq!(value(source).await, expected, "{source}");
    }
}

async fn arguments_are_refused_with_their_path() {
    for (argument, expected) in [
        ("{ rows: [1, 0 / 0] }", "`rows[1]` in the arguments of mcp.test.echo is NaN"),
        ("{ n: 0 / 0 }", "`n` in the arguments of mcp.test.echo is NaN"),
        ("{ a: { m: new Map() } }", "`a.m` in the arguments of mcp.test.echo is a Map"),
        (
            "{ text: mcp.test.id({}) }",
            "`text` in the arguments of mcp.test.echo is a promise; write `await` before it",
        ),
        ("new Map()", "the argument of mcp.test.echo is a Map"),
        ("{ then: () => 1 }", "`then` in the arguments of mcp.test.echo is a function"),
    ] {
        let failed = failure(&format!("\nawait mcp.test.echo({argument})")).await;
        assert_eq!((failed.name.as_str(), failed.line), ("TypeError", Some(2)), "{failed:#?}");
        assert!(failed.message.starts_with(expected), "{argument}\n{}", failed.message);
    }
    let fine =
        "return await mcp.test.echo({ a: undefined, b: new Date(0), c: [new Error('e')], d: -0 })";
    let expected = json!({ "b": "1970-01-01T00:00:00.000Z", "c": [{ "name": "Error", "message": "e" }], "d": 0 });
    assert_eq!(value(fine).await, expected);
}

/// SB-12: code that runs while a value is serialized counts towards its own run's limits, and harms nothing else.
async fn hostile_values_are_bounded() {
    for (source, kind) in [
        ("return { get a() { for (;;) {} } }", FailureKind::CpuTime),
        ("return { toJSON() { for (;;) {} } }", FailureKind::CpuTime),
        ("return { get a() { return Promise.resolve(1).then(() => this) } }", FailureKind::CpuTime),
        (
            "return new Proxy({}, { ownKeys() { throw new Error('no') } })",
            FailureKind::ResultNotSerializable,
        ),
        ("return { then: 1, a: new Promise(() => {}) }", FailureKind::Deadlock),
        (
            "Promise.all = () => 1; return [Promise.resolve(new Map())]",
            FailureKind::ResultNotSerializable,
        ),
        ("Array.prototype.toJSON = () => 0n; return [1]", FailureKind::ResultNotSerializable),
    ] {
        let failed = failure(source).await;
        assert_eq!(failed.kind, kind, "{source}\n{failed:#?}");
    }
    let replaced = "Object.prototype.then = undefined; JSON.stringify = () => '7'; WeakMap.prototype.get = () => 7;
        Map.prototype.has = () => true; return { a: [1] }";
    assert_eq!(value(replaced).await, json!({ "a": [1] }));
}

async fn undefined_is_distinguished_from_null() {
    let of = |source: &'static str| async move {
        let outcome = run(source).await;
        (outcome.result.expect("a result"), outcome.returned_nothing)
    };
    assert_eq!(of("return null").await, (Value::Null, false));
    assert_eq!(of("return undefined").await, (Value::Null, true));
    assert_eq!(of("await mcp.test.id({})").await, (Value::Null, true));
}

/// Runs a program in which `§` marks the expression whose value is the result.
async fn without_return(text: &str) -> Outcome {
    let mut source = String::new();
    let mut offsets = Vec::new();
    for (index, part) in text.split('§').enumerate() {
        if index > 0 {
            offsets.push(u32::try_from(source.len()).expect("a short program"));
            source += "return await (";
        }
        source += part;
    }
    let program = Program { source, implicit_returns: Some(offsets), ..Program::default() };
    run_with(program, &Limits::server(), Arc::default()).await
}

async fn a_program_without_return_waits_for_what_it_started() {
    for (source, expected) in [
        (
            // The order of the answers is that of the machine; that of the numbers in an object is not.
            "const out = {}; [3, 2, 1].forEach(async (n) => { await mcp.test.wait({ ms: n }); out[n] = true; }); §out)",
            json!({ "1": true, "2": true, "3": true }),
        ),
        (
            "const out = {}; setTimeout(() => { out.late = true }, 5); §out)",
            json!({ "late": true }),
        ),
        ("setInterval(() => {}, 1); §7)", json!(7)),
    ] {
        let outcome = without_return(source).await;
        assert_eq!(outcome.result, Ok(expected), "{source}");
        assert_eq!(outcome.unanswered, Vec::<String>::new());
    }
    let outcome = without_return("mcp.test.id({}).then(console.log);").await;
    assert_eq!((outcome.result, outcome.console[0].text.as_str()), (Ok(Value::Null), "1"));
    let returned = run("mcp.test.wait({ ms: 50 }); return 1").await;
    assert_eq!(returned.unanswered, ["test:wait"], "a program that returns waits for nothing");
}

async fn answers_that_arrive_together_are_all_delivered() {
    let calls = "const calls = Array.from({ length: 20 }, () => mcp.test.id({})); let last = 0;
        calls.forEach((call) => call.then((id) => { last = id }));";
    for _ in 0..20 {
        let outcome = without_return(&format!("{calls} §[await calls[0], calls[19]])")).await;
        assert_eq!(outcome.result, Ok(json!([1, 20])));
        let outcome = without_return(&format!("{calls} await calls[0]; §(() => last)())")).await;
        assert!(outcome.result.is_ok() && outcome.unanswered.is_empty(), "{outcome:?}");
        let listed = value(&format!("{calls} await calls[3]; return calls")).await;
        assert_eq!(listed.as_array().map(Vec::len), Some(20));
    }
}

async fn an_implicit_result_that_is_invalid_is_a_warning() {
    for (source, expected) in [
        ("const seen = new Set(); §seen.add(1))", "`result` is a Set"),
        ("§({ tool: mcp.test.echo }))", "`result.tool` is a tool"),
        ("§'x'.repeat(2e6))", "the result has 2000002 bytes"),
    ] {
        let outcome = without_return(source).await;
        assert_eq!((outcome.result, outcome.returned_nothing), (Ok(Value::Null), true), "{source}");
        let [line] = &outcome.console[..] else { panic!("{:?}", outcome.console) };
        let expected = format!("the value of the last statement is not a valid result: {expected}");
        assert!(line.level == "warn" && line.text.starts_with(&expected), "{line:?}");
    }
    let failed =
        without_return("§[1, mcp.test.fail({})])").await.result.expect_err("a failed call");
    assert_eq!(failed.message, "the tool said no");
}

async fn a_program_without_return_fails_on_an_unhandled_rejection() {
    let outcome = without_return(
        "async function main() {\n  await mcp.test.fail({});\n}\nmain();\nconsole.log('on')",
    )
    .await;
    let failed = outcome.result.expect_err("the failure of `main`");
    assert_eq!(
        (failed.message.as_str(), failed.line),
        ("the tool said no", Some(2)),
        "{failed:#?}"
    );
    assert_eq!(outcome.console[0].text, "on");
    let handled = without_return(
        "const p = mcp.test.fail({}); await mcp.test.wait({ ms: 1 }); await p.catch(() => 1); §2)",
    )
    .await;
    assert_eq!(handled.result, Ok(json!(2)));
}

async fn an_unhandled_rejection_is_printed() {
    let outcome = run("mcp.test.fail({}); await mcp.test.wait({ ms: 1 }); return 1").await;
    assert_eq!(outcome.result, Ok(json!(1)));
    let [line] = &outcome.console[..] else { panic!("{:?}", outcome.console) };
    assert_eq!(
        (line.level.as_str(), line.text.as_str()),
        (
            "error",
            "a promise failed and nothing awaited it: ToolError: the tool said no (line 1, column 10)"
        )
    );
}

async fn positions_ignore_inserted_returns() {
    let written = "const f = () => { throw new Error('é') }; if (f) { §(0, f)()) }";
    let failed = without_return(written).await.result.expect_err("an error");
    let plain = failure(&written.replace('§', "").replace("())", "()")).await;
    assert_eq!((failed.line, failed.column), (Some(1), Some(29)));
    let frames = |failure: &sandbox::Failure| failure.stack.clone().unwrap_or_default();
    assert_eq!(frames(&failed), frames(&plain));
    assert_eq!(frames(&failed).lines().count(), 2);
}
