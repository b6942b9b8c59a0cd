//! Each limit has its own failure, and the host survives all of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sandbox::{FailureKind, Limits};
use serde_json::json;

use crate::support::{
    Tools, fails_as, failure, failure_with, program, run, run_with, trials, value,
};

trials![
    endless_loops_end_by_cpu,
    microtask_floods_end_by_cpu,
    catching_does_not_evade_the_cpu_limit,
    backtracking_ends_by_cpu,
    builtins_that_never_poll_are_killed,
    waiting_for_tools_costs_no_cpu,
    wall_time_ends_a_waiting_program,
    memory_bombs_run_out_of_memory,
    deep_recursion_overflows,
    a_deadlock_is_detected_at_once,
    too_many_calls_cannot_be_caught,
    large_arguments_are_refused,
    large_tool_results_are_refused,
    large_results_are_refused,
    results_without_a_json_form_are_refused,
    console_output_is_truncated,
    timers_are_bounded,
    deep_values_are_refused,
];

fn short_cpu() -> Limits {
    Limits { cpu: Duration::from_millis(300), ..Limits::server() }
}

async fn endless_loops_end_by_cpu() {
    // The engine checks the time after a number of calls and jumps. In a call, it knows the position; at a loop's back
    // edge, only the last position before that, if there is one. The reported line is right, or there is none.
    for (source, line) in [
        ("let a = 1;\nfor (;;) { a = a.valueOf() }", None),
        ("let a = 1;\nfor (;;) { a = a.valueOf(); a.valueOf() }", Some(2)),
        ("Math.abs(1);\nfor (;;) {}", Some(1)),
        ("const f = () => {\n  Math.abs(1); for (;;) {}\n};\nf();", Some(2)),
    ] {
        let failure = failure_with(source, &short_cpu()).await;
        assert_eq!(failure.kind, FailureKind::CpuTime, "{failure:#?}");
        assert!(failure.line.is_none() || failure.line == line, "{failure:#?}");
        let line = failure.line.map_or(String::new(), |line| format!(", at or after line {line}"));
        assert!(failure.message.ends_with(&format!("ms of CPU time{line}")), "{failure:#?}");
    }
    fails_as(FailureKind::CpuTime, "await 0; while (true) {}", &short_cpu()).await;
    fails_as(
        FailureKind::CpuTime,
        "setTimeout(() => { for (;;) {} }, 1); await new Promise(() => {})",
        &short_cpu(),
    )
    .await;
    fails_as(FailureKind::CpuTime, "return { toJSON() { for (;;) {} } }", &short_cpu()).await;
}

async fn microtask_floods_end_by_cpu() {
    fails_as(FailureKind::CpuTime, "for (;;) await null", &short_cpu()).await;
    fails_as(
        FailureKind::CpuTime,
        "const f = () => queueMicrotask(f); f(); await new Promise(() => {})",
        &short_cpu(),
    )
    .await;
}

async fn catching_does_not_evade_the_cpu_limit() {
    let source = "for (;;) { try { for (;;) {} } catch {} finally { continue } }";
    fails_as(FailureKind::CpuTime, source, &short_cpu()).await;
    let nested =
        "const f = async () => { try { for (;;) {} } catch { return f() } }; await f(); return 1";
    fails_as(FailureKind::CpuTime, nested, &short_cpu()).await;
}

async fn backtracking_ends_by_cpu() {
    fails_as(FailureKind::CpuTime, "return /^(a+)+$/.test('a'.repeat(40) + 'b')", &short_cpu())
        .await;
}

async fn builtins_that_never_poll_are_killed() {
    for source in [
        "return 'a'.repeat(3e7).indexOf('a'.repeat(1e6) + 'b')",
        "return new Array(2 ** 31).join()",
        "const t = new Float64Array(2e6).map(() => Math.random()); for (;;) { t.sort(); t.reverse() }",
    ] {
        fails_as(FailureKind::CpuTime, source, &short_cpu()).await;
    }
    let wall = Limits { wall: Duration::from_millis(300), ..Limits::client() };
    let took = fails_as(
        FailureKind::WallTime,
        "return 'a'.repeat(3e7).indexOf('a'.repeat(1e6) + 'b')",
        &wall,
    )
    .await;
    assert!(took < Duration::from_secs(3), "{took:?}");
}

async fn waiting_for_tools_costs_no_cpu() {
    let source = "for (let i = 0; i < 5; i++) await mcp.test.wait({ ms: 150 }); return 'done'";
    let outcome = run_with(program(source), &short_cpu(), Arc::default()).await;
    assert_eq!(outcome.result, Ok(json!("done")));
}

async fn wall_time_ends_a_waiting_program() {
    let limits = Limits { wall: Duration::from_millis(200), ..Limits::server() };
    let tools = Arc::new(Tools::default());
    let outcome = run_with(program("await mcp.test.never({})"), &limits, Arc::clone(&tools)).await;
    assert_eq!(outcome.result.expect_err("too long").kind, FailureKind::WallTime);
    assert_eq!(tools.cancelled.load(Ordering::SeqCst), 1);
    fails_as(
        FailureKind::WallTime,
        "await new Promise((done) => setTimeout(done, 60000))",
        &limits,
    )
    .await;
}

async fn memory_bombs_run_out_of_memory() {
    for source in [
        "const all = []; for (;;) all.push(new Array(1000).fill({ a: 1 }))",
        "const all = []; for (;;) all.push(new ArrayBuffer(1e6))",
        "const all = new Map(); for (let i = 0; ; i++) all.set(i, 'x'.repeat(100) + i)",
        "return new Uint8Array(1e9).length",
    ] {
        fails_as(FailureKind::OutOfMemory, source, &Limits::client()).await;
    }
    assert_eq!(
        value("try { new Uint8Array(1e9) } catch (e) { return e.message }").await,
        json!("out of memory")
    );
}

async fn deep_recursion_overflows() {
    let failure = failure("const f = (n) => f(n + 1) + 1;\nreturn f(0)").await;
    assert_eq!(failure.kind, FailureKind::StackOverflow, "{failure:#?}");
    assert_eq!(failure.line, Some(1));
    for source in [
        "const a = []; a[0] = a; let s = '['.repeat(2e5) + ']'.repeat(2e5); return JSON.parse(s)",
        "const o = { toString() { return '' + this } }; return '' + o",
        "const p = new Proxy({}, { get(t, k, r) { return r[k] } }); return p.x",
    ] {
        fails_as(FailureKind::StackOverflow, source, &Limits::server()).await;
    }
}

async fn a_deadlock_is_detected_at_once() {
    let took =
        fails_as(FailureKind::Deadlock, "await new Promise(() => {})", &Limits::server()).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    fails_as(
        FailureKind::Deadlock,
        "await mcp.test.echo({}); await { then() {} }",
        &Limits::server(),
    )
    .await;
}

async fn too_many_calls_cannot_be_caught() {
    let limits = Limits { calls: 10, ..Limits::server() };
    let source = "for (;;) { try { await mcp.test.echo({}) } catch {} }";
    let outcome = run_with(program(source), &limits, Arc::default()).await;
    assert_eq!(outcome.result.expect_err("too many").kind, FailureKind::TooManyCalls);
    assert_eq!(outcome.calls, 10);
    let exact = "for (let i = 0; i < 10; i++) await mcp.test.echo({}); return 'ok'";
    let outcome = run_with(program(exact), &limits, Arc::default()).await;
    assert_eq!(outcome.result, Ok(json!("ok")));
}

async fn large_arguments_are_refused() {
    let failure = failure("\nawait mcp.test.echo({ x: 'y'.repeat(2e6) })").await;
    assert_eq!(
        (failure.kind, failure.line),
        (FailureKind::ArgumentTooLarge, Some(2)),
        "{failure:#?}"
    );
    let caught = "try { await mcp.test.echo({ x: 'y'.repeat(2e6) }) } catch (e) { return e.code }";
    assert_eq!(value(caught).await, json!("ARGUMENT_TOO_LARGE"));
    let just_fits = "return (await mcp.test.echo({ x: 'y'.repeat(1024 * 1024 - 8) })).x.length";
    assert_eq!(value(just_fits).await, json!(1024 * 1024 - 8));
}

async fn large_tool_results_are_refused() {
    let failure = failure("\n\nawait mcp.test.big({ bytes: 9000000 })").await;
    assert_eq!(
        (failure.kind, failure.line),
        (FailureKind::ToolResultTooLarge, Some(3)),
        "{failure:#?}"
    );
    assert_eq!(
        value("return (await mcp.test.big({ bytes: 8000000 })).length").await,
        json!(8_000_000)
    );
    let many = "const all = await Promise.all([1, 2, 3, 4, 5, 6].map(() => mcp.test.big({ bytes: 4000000 }))); return all.length";
    assert_eq!(value(many).await, json!(6));
}

async fn large_results_are_refused() {
    fails_as(FailureKind::ResultTooLarge, "return 'x'.repeat(2e6)", &Limits::server()).await;
    assert_eq!(value("return 'x'.repeat(1048000)").await.as_str().map(str::len), Some(1_048_000));
}

async fn results_without_a_json_form_are_refused() {
    for (source, message) in [
        ("return 1n", "`result` is the BigInt 1n"),
        ("const a = {}; a.a = a; return a", "`result.a` is an object that contains itself"),
        (
            "return { toJSON() { throw new Error('no') } }",
            "the returned value has no JSON form: no",
        ),
    ] {
        let failure = failure(source).await;
        assert_eq!(failure.kind, FailureKind::ResultNotSerializable, "{source}\n{failure:#?}");
        assert!(failure.message.starts_with(message), "{}", failure.message);
    }
}

async fn console_output_is_truncated() {
    let outcome = run("for (let i = 0; i < 1e5; i++) console.log('line ' + i); return 1").await;
    assert_eq!(outcome.result, Ok(json!(1)));
    assert!(outcome.console_truncated);
    let bytes: usize = outcome.console.iter().map(|line| line.text.len()).sum();
    assert!(bytes <= 64 * 1024 && bytes > 32 * 1024, "{bytes}");
    let one = run("console.log('é'.repeat(1e6)); console.log('more'); return 2").await;
    assert_eq!(one.result, Ok(json!(2)));
    assert!(one.console_truncated);
    assert_eq!(one.console.len(), 1);
    let empty = run("for (let i = 0; i < 1e5; i++) console.log(''); return 3").await;
    assert_eq!(empty.result, Ok(json!(3)));
    assert!(empty.console_truncated && empty.console.len() <= 64 * 1024);
    let fits = run("console.log('x'.repeat(65536)); return 4").await;
    assert!(!fits.console_truncated);
    assert_eq!(fits.console[0].text.len(), 65_536);
}

async fn timers_are_bounded() {
    let failure = failure("for (;;) setTimeout(() => {}, 1000)").await;
    assert_eq!((failure.kind, failure.line), (FailureKind::TooManyTimers, Some(1)), "{failure:#?}");
    assert_eq!(failure.name, "RangeError", "{failure:#?}");
    assert!(failure.message.contains("1024"), "{}", failure.message);
    let cleared =
        "for (let i = 0; i < 5000; i++) clearTimeout(setTimeout(() => {}, 1000)); return 1";
    assert_eq!(value(cleared).await, json!(1));
    let forged = "throw Object.assign(new RangeError('no'), { code: 'TOO_MANY_TIMERS' })";
    fails_as(FailureKind::Exception, forged, &Limits::server()).await;
}

async fn deep_values_are_refused() {
    let deep = "let v = []; for (let i = 0; i < 300; i++) v = [v];";
    fails_as(FailureKind::ResultNotSerializable, &format!("{deep} return v"), &Limits::server())
        .await;
    let call = failure(&format!("{deep} await mcp.test.echo({{ v }})")).await;
    assert!(call.message.contains("levels deep"), "{}", call.message);
    assert_eq!(value("return Array.isArray(await mcp.test.deep({}))").await, json!(true));
}
