//! Ordinary programs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sandbox::{ConsoleLine, FailureKind, Limits, Program};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Tools, eventually, failure, pool, program, run, run_with, trials, value};

trials![
    returns_a_value,
    a_missing_result_is_null,
    args_reach_the_program,
    calls_reach_tools_and_return_answers,
    parallel_calls_are_in_flight_together,
    many_parallel_calls_wait_in_order,
    call_ids_increase,
    an_error_of_a_program_class_points_at_its_new,
    errors_have_positions_in_the_users_source,
    a_callee_that_is_not_a_function_is_named,
    tool_errors_keep_name_message_code_and_position,
    tool_errors_can_be_caught,
    syntax_errors_have_a_position,
    columns_count_characters,
    thrown_values_other_than_errors_are_described,
    console_lines_are_returned_in_order,
    text_is_unchanged_in_both_directions,
    programs_are_strict_as_modules_are,
    html_comments_are_not_comments,
    misused_tools_explain_the_correct_form,
    cancelling_ends_the_run_and_its_calls,
    dropping_the_run_cancels_its_calls,
    a_finished_program_cancels_its_calls_in_flight,
    timers_fire_in_order,
    a_throwing_timer_fails_the_run,
    waiting_for_a_human_costs_no_wall_time,
    answers_are_delivered_one_by_one,
    an_inherited_then_may_call_tools,
    cpu_time_is_measured_by_the_host,
];

async fn returns_a_value() {
    assert_eq!(value("return 1 + 1").await, json!(2));
    assert_eq!(
        value("return { a: [1, 'x', null, true], b: undefined }").await,
        json!({"a": [1, "x", null, true]})
    );
    assert_eq!(value("// only a comment").await, Value::Null);
    assert_eq!(value("const args = 1; const mcp = 2; return args + mcp").await, json!(3));
}

async fn a_missing_result_is_null() {
    assert_eq!(value("const x = 1").await, Value::Null);
    assert_eq!(value("return undefined").await, Value::Null);
    assert_eq!(failure("return () => 1").await.kind, FailureKind::ResultNotSerializable);
}

async fn args_reach_the_program() {
    let program = Program {
        source: "args.list.push(3); return { args, same: Object.is(args, globalThis.args) }"
            .to_owned(),
        args: json!({"list": [1, 2], "__proto__": {"x": 1}}),
        ..Program::default()
    };
    let outcome = run_with(program, &Limits::server(), Arc::default()).await;
    assert_eq!(
        outcome.result,
        Ok(json!({"args": {"list": [1, 2, 3], "__proto__": {"x": 1}}, "same": true}))
    );
    let failure = failure("args = 1").await;
    assert_eq!((failure.name.as_str(), failure.line), ("TypeError", Some(1)));
}

async fn calls_reach_tools_and_return_answers() {
    let outcome = run(r#"
        const { echo } = mcp.test;
        const a = await mcp.test.echo({ n: 1 });
        const b = await mcp["test"]["echo"]({ n: 2 });
        const c = await echo({ n: 3 });
        const d = await [{ n: 4 }].map(mcp.test.echo)[0].catch((e) => e.message);
        const e = await mcp.test.echo.call(null, { n: 5 });
        const f = await mcp.test.echo();
        return [a, b, c, d, e, f];
    "#)
    .await;
    let expected = json!([
        {"n": 1}, {"n": 2}, {"n": 3},
        "mcp.test.echo takes one object of named arguments, not 3 arguments",
        {"n": 5}, {}
    ]);
    assert_eq!(outcome.result, Ok(expected));
    assert_eq!(outcome.calls, 5);
}

async fn parallel_calls_are_in_flight_together() {
    let tools = Arc::new(Tools::default());
    let source = "await Promise.all([1, 2, 3, 4, 5].map(() => mcp.test.wait({ ms: 50 })))";
    let outcome = run_with(program(source), &Limits::server(), Arc::clone(&tools)).await;
    assert_eq!(outcome.result, Ok(Value::Null));
    assert_eq!(tools.most_running.load(Ordering::SeqCst), 5);
}

async fn many_parallel_calls_wait_in_order() {
    let tools = Arc::new(Tools::default());
    let source =
        "return await Promise.all(Array.from({ length: 200 }, (_, i) => mcp.test.id({ i })))";
    let limits = Limits { in_flight: 7, ..Limits::server() };
    let outcome = run_with(program(source), &limits, Arc::clone(&tools)).await;
    assert_eq!(outcome.result, Ok(json!((1..=200).collect::<Vec<u32>>())));
    assert!(tools.most_running.load(Ordering::SeqCst) <= 7);
}

async fn call_ids_increase() {
    let source =
        "const ids = []; for (let i = 0; i < 300; i++) ids.push(await mcp.test.id()); return ids";
    assert_eq!(value(source).await, json!((1..=300).collect::<Vec<u32>>()));
}

async fn errors_have_positions_in_the_users_source() {
    // The wrapper before the first line does not shift its columns.
    let first = failure("  throw new Error('x')").await;
    let second = failure("\n  throw new Error('x')").await;
    assert_eq!((first.line, second.line), (Some(1), Some(2)), "{first:#?}");
    assert_eq!(first.column, second.column);
    assert!(first.column.is_some_and(|column| column > 2), "{first:#?}");
    for (source, column) in [
        ("throw new Error()", 11),
        ("null.x", 1),
        ("const f = () => { null.x }; f()", 19),
        ("absent()", 1),
        ("const a = {}; a.b()", 17),
        ("fetch('x')", 1),
    ] {
        let first = failure(source).await;
        assert_eq!((first.line, first.column), (Some(1), Some(column)), "{first:#?}");
        let second = failure(&format!("\n{source}")).await;
        assert_eq!((second.line, second.column), (Some(2), Some(column)), "{second:#?}");
    }
    let nested = failure("const a = 1;\nfunction inner() {\n  throw new RangeError(`bad ${a}`);\n}\nawait 0;\ninner();").await;
    assert_eq!(nested.message, "bad 1");
    assert_eq!(nested.line, Some(3));
    assert_eq!(nested.stack.as_deref().map(|s| s.lines().count()), Some(2), "{nested:#?}");
    let stack = nested.stack.unwrap_or_default();
    assert!(stack.starts_with("    at inner (program.ts:3:"), "{stack}");
    assert!(stack.ends_with("    at program.ts:6:1"), "{stack}");
}

async fn an_error_of_a_program_class_points_at_its_new() {
    for class in [
        "class TooLow extends Error { constructor(m) { super(m); this.name = 'TooLow'; } }",
        "class Base extends Error { constructor(m) { super(m); } } class TooLow extends Base { constructor(m) { super(m); } }",
        "class TooLow extends Error {}",
        "class TooLow extends Error { code = 7; }",
    ] {
        let failure = failure(&format!("{class}\nconst n = 1;\nthrow new TooLow('low');")).await;
        assert_eq!((failure.line, failure.column), (Some(3), Some(11)), "{class}: {failure:#?}");
    }
}

async fn a_callee_that_is_not_a_function_is_named() {
    for (source, message) in [
        (
            "const list = { items: 1 };\nlist.items.map((x) => x)",
            "`list.items.map` is not a function",
        ),
        ("const run = 1;\nrun()", "`run` is not a function"),
        ("const o = {};\no?.go()", "`o?.go` is not a function"),
        ("const list = [1];\nlist.map(5)", "not a function"),
        ("const list = [];\n(0, list.go)()", "not a function"),
    ] {
        let failure = failure(source).await;
        assert_eq!((failure.message.as_str(), failure.line), (message, Some(2)), "{source}");
    }
}

async fn tool_errors_keep_name_message_code_and_position() {
    let failure = failure(
        "const x = 1;\nasync function work() {\n  await mcp.test.fail({});\n}\nawait work();",
    )
    .await;
    assert_eq!(failure.kind, FailureKind::Exception);
    assert_eq!(
        (failure.name.as_str(), failure.message.as_str()),
        ("ToolError", "the tool said no")
    );
    assert_eq!(failure.code.as_deref(), Some("NO"));
    assert_eq!(failure.line, Some(3), "{failure:#?}");
    assert!(!failure.stack.unwrap_or_default().contains("bootstrap"));
}

async fn tool_errors_can_be_caught() {
    let source = "try { await mcp.test.fail({}) } catch (e) { return [e instanceof Error, e.name, e.message, e.code] }";
    assert_eq!(value(source).await, json!([true, "ToolError", "the tool said no", "NO"]));
}

async fn syntax_errors_have_a_position() {
    let failure = failure("const a = 1;\nconst b = ;").await;
    assert_eq!((failure.kind, failure.name.as_str()), (FailureKind::Syntax, "SyntaxError"));
    assert_eq!(failure.line, Some(2), "{failure:#?}");
    let repeated = crate::support::failure("let a; let a;").await;
    assert_eq!(repeated.kind, FailureKind::Syntax);
}

async fn columns_count_characters() {
    for (source, place) in [
        ("throw new Error()", (1, 11)),
        ("'漢字'; throw new Error()", (1, 17)),
        ("/*👍é*/\tthrow new Error()", (1, 18)),
        ("1;\r\n'漢字👍'; throw new Error()", (2, 18)),
        ("1;\u{2028}'漢';\rthrow new Error()", (3, 11)),
        ("'漢字'; let let = 1", (1, 11)),
    ] {
        let failure = failure(source).await;
        assert_eq!((failure.line, failure.column), (Some(place.0), Some(place.1)), "{source:?}");
    }
}

async fn thrown_values_other_than_errors_are_described() {
    assert_eq!(failure("throw 'text'").await.message, "text");
    assert_eq!(failure("throw { a: 1 }").await.message, r#"{"a":1}"#);
    assert_eq!(failure("throw undefined").await.message, "a value of type undefined");
    let odd = failure("throw { get message() { throw 1 }, get name() { return 7n } }").await;
    assert_eq!(odd.kind, FailureKind::Exception);
}

async fn console_lines_are_returned_in_order() {
    let outcome = run(r#"
        console.log("a", 1, { b: [1, "x", { c: null }] }, undefined);
        console.warn(new Map([["k", new Set([1])]]), [1n, -0]);
        console.error(new TypeError("oops"));
        const loop = {}; loop.me = loop;
        console.info(loop, mcp, mcp.test, mcp.test.echo);
        console.debug("x\ny", "\ud800");
    "#)
    .await;
    let line =
        |level: &str, text: &str| ConsoleLine { level: level.to_owned(), text: text.to_owned() };
    assert_eq!(outcome.result, Ok(Value::Null));
    assert_eq!(
        outcome.console,
        [
            line("log", r#"a 1 { b: [ 1, "x", { c: null } ] } undefined"#),
            line("warn", r#"Map(1) { "k" => Set(1) { 1 } } [ 1n, -0 ]"#),
            line("error", "TypeError: oops\n    at program.ts:4:27"),
            line("info", "{ me: [Circular] } [mcp] [mcp.test] [mcp.test.echo]"),
            line("debug", "x\ny \u{fffd}"),
        ]
    );
    assert!(!outcome.console_truncated);
}

async fn text_is_unchanged_in_both_directions() {
    let source =
        r#"return [await mcp.test.echo({ t: "é😀\u0000\"\\\ud800" }), "ü\ud83d\ude00\udc00"]"#;
    assert_eq!(value(source).await, json!([{"t": "é😀\u{0}\"\\\u{fffd}"}, "ü😀\u{fffd}"]));
}

async fn programs_are_strict_as_modules_are() {
    assert_eq!(value("return (function () { return this === undefined })()").await, json!(true));
    assert_eq!(failure("undeclared = 1").await.name, "ReferenceError");
    assert_eq!(failure("with ({}) {}").await.kind, FailureKind::Syntax);
}

async fn html_comments_are_not_comments() {
    assert_eq!(value("let x = 2, y = 1; return x<!--y\n").await, json!(false));
}

async fn misused_tools_explain_the_correct_form() {
    let no_object = failure("await mcp.test.echo('path')").await;
    assert_eq!(no_object.name, "TypeError");
    assert!(no_object.message.contains("one object of named arguments"), "{}", no_object.message);
    assert_eq!(no_object.line, Some(1));
    let no_json = failure("\nawait mcp.test.echo({ a: 1n })").await;
    assert!(no_json.message.starts_with("`a` in the arguments of"), "{}", no_json.message);
    assert_eq!(no_json.line, Some(2));
    let list = failure("await mcp.test.echo([1])").await;
    assert!(list.message.contains("not an array"), "{}", list.message);
    assert_eq!(failure("await mcp.test()").await.name, "TypeError");
    assert_eq!(value("return [typeof mcp.then, typeof mcp.test.then, typeof mcp[Symbol.iterator], await mcp === mcp]").await,
        json!(["undefined", "undefined", "undefined", true]));
}

async fn cancelling_ends_the_run_and_its_calls() {
    let tools = Arc::new(Tools::default());
    let cancel = CancellationToken::new();
    let started = Arc::clone(&tools);
    let trigger = cancel.clone();
    let canceller = tokio::spawn(async move {
        eventually("the call runs", || started.most_running.load(Ordering::SeqCst) > 0).await;
        trigger.cancel();
    });
    let limits = Limits::server();
    let outcome = pool()
        .run(program("await mcp.test.never({})"), &limits, Arc::clone(&tools) as _, cancel)
        .await;
    assert_eq!(outcome.result.expect_err("cancelled").kind, FailureKind::Cancelled);
    assert_eq!(tools.cancelled.load(Ordering::SeqCst), 1);
    canceller.await.expect("no panic");
}

async fn dropping_the_run_cancels_its_calls() {
    let tools = Arc::new(Tools::default());
    let limits = Limits::server();
    let program = program("await mcp.test.never({})");
    let run = pool().run(program, &limits, Arc::clone(&tools) as _, CancellationToken::new());
    let started = eventually("the call runs", || tools.most_running.load(Ordering::SeqCst) > 0);
    tokio::select! {
        outcome = run => panic!("ended: {outcome:?}"),
        () = started => {}
    }
    assert_eq!(tools.cancelled.load(Ordering::SeqCst), 1);
}

async fn a_finished_program_cancels_its_calls_in_flight() {
    let tools = Arc::new(Tools::default());
    let source = "return await Promise.race([mcp.test.never({}).then(() => 'never'), mcp.test.echo({}).then(() => 'echo')])";
    let outcome = run_with(program(source), &Limits::server(), Arc::clone(&tools)).await;
    assert_eq!(outcome.result, Ok(json!("echo")));
    assert_eq!(tools.cancelled.load(Ordering::SeqCst), 1);
}

async fn timers_fire_in_order() {
    let source = r#"
        const seen = [];
        setTimeout(() => seen.push("b"), 20);
        setTimeout((x) => seen.push(x), 1, "a");
        const gone = setTimeout(() => seen.push("gone"), 5);
        clearTimeout(gone);
        let count = 0;
        await new Promise((done) => {
            const each = setInterval(() => { if (++count === 3) { clearInterval(each); done(); } }, 15);
        });
        queueMicrotask(() => seen.push("micro"));
        await 0;
        return seen;
    "#;
    assert_eq!(value(source).await, json!(["a", "b", "micro"]));
}

async fn a_throwing_timer_fails_the_run() {
    let failure =
        failure("setTimeout(() => { throw new Error('late') }, 1);\nawait new Promise(() => {})")
            .await;
    assert_eq!((failure.message.as_str(), failure.line), ("late", Some(1)));
    let micro = crate::support::failure(
        "queueMicrotask(() => { throw new Error('soon') });\nawait new Promise(() => {})",
    )
    .await;
    assert_eq!(micro.message, "soon");
}

async fn waiting_for_a_human_costs_no_wall_time() {
    let limits = Limits { wall: Duration::from_millis(400), ..Limits::server() };
    let source = "const a = await mcp.test.human({ ms: 900 }); return a";
    let outcome = run_with(program(source), &limits, Arc::default()).await;
    assert_eq!(outcome.result, Ok(json!("yes")));
    assert!(outcome.duration >= Duration::from_millis(900));
}

/// A program's steps must have the same order whether answers arrive one by one or all at once. In the second run, all
/// of them wait in the socket while the program is busy.
async fn answers_are_delivered_one_by_one() {
    let race = |busy: &str| {
        format!(
            "const steps = [];
            const chain = async (name) => {{
                await mcp.test.echo({{}});
                for (let i = 0; i < 4; i++) {{ steps.push(name + i); await null; }}
            }};
            const all = Promise.all(['a', 'b', 'c'].map(chain));
            {busy}
            await all;
            return steps.join(' ')"
        )
    };
    let expected = json!("a0 a1 a2 a3 b0 b1 b2 b3 c0 c1 c2 c3");
    assert_eq!(value(&race("")).await, expected);
    let busy = "await mcp.test.echo({}); const end = Date.now() + 50; while (Date.now() < end) {}";
    assert_eq!(value(&race(busy)).await, expected);
}

async fn an_inherited_then_may_call_tools() {
    let source = "
        let seen = 0;
        Object.defineProperty(Object.prototype, 'then', { get() {
            if (seen++ < 3) mcp.test.echo({ a: 1 }).catch(() => {});
            return undefined;
        } });
        await mcp.test.echo({});
        return seen > 0";
    assert_eq!(value(source).await, json!(true));
}

async fn cpu_time_is_measured_by_the_host() {
    let outcome = run("let n = 0; while (Date.now() % 1e9 >= 0 && n < 3e5) n++; return n").await;
    assert_eq!(outcome.result, Ok(json!(300_000)));
    let cpu = outcome.cpu.expect("the host can measure");
    assert!(cpu > Duration::from_millis(1) && cpu < Duration::from_secs(10), "{cpu:?}");
}
