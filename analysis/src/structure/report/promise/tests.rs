//! Programs that misuse promises, and programs that do not.

use crate::Limits;
use crate::structure::report::build;

/// Returns each finding as `CODE column message`, for a program of one line.
fn messages(source: &str) -> Vec<String> {
    let limits = Limits::default();
    let parsed =
        crate::parse::parse(source, &limits).unwrap_or_else(|found| panic!("{source}: {found:?}"));
    let found = build(&parsed, source, &limits).expect("it is not refused").findings;
    let located = found.into_iter().map(|found| found.locate(source));
    located
        .map(|found| format!("{} {} {}", found.code.as_str(), found.column, found.message))
        .collect()
}

/// Checks the beginnings of the messages for each program.
fn check(programs: &[(&str, &[&str])]) {
    for (source, expected) in programs {
        let found = messages(source);
        let holds = found.len() == expected.len()
            && found.iter().zip(*expected).all(|(message, start)| message.starts_with(start));
        assert!(holds, "{source}\n{found:#?}\n{expected:#?}");
    }
}

#[test]
fn finds_promises_that_are_used_as_values() {
    check(&[
        (
            "const f = (x) => x.length; return f(mcp.a.b({}));",
            &[
                "TOOL_PROMISE_USED 18 `x` is a promise, which has no `length`; write `(await x).length`",
            ],
        ),
        (
            "const f = ({ x }) => x; return f(mcp.a.b({}));",
            &["TOOL_PROMISE_USED 34 `mcp.a.b({})` is a promise, which cannot be destructured"],
        ),
        (
            "const l = args.l.map(async (x) => x); return l.filter(({ ok }) => ok);",
            &["TOOL_PROMISE_USED 46 `l` is a promise, which cannot be destructured"],
        ),
        (
            "const o = { p: mcp.a.b({}) }; await mcp.a.c({ in: [o] });",
            &["TOOL_PROMISE_USED 16 `mcp.a.b({})` is a promise, but a tool needs a value"],
        ),
        (
            "class A { get p() { return mcp.a.b({}); } } if (new A().p) { return 1; }",
            &["TOOL_PROMISE_USED 49 `new A().p` is a promise, which is always true"],
        ),
        (
            "const l = args.l.map((x) => mcp.a.b({ x })); return Math.max(...l);",
            &["TOOL_PROMISE_USED 65 the items of `l` are promises; write `await Promise.all(l)`"],
        ),
        (
            "const l = args.l.map((x) => mcp.a.b({ x })); return l[0].y + l.join();",
            &[
                "TOOL_PROMISE_USED 53 `l[0]` is a promise, which has no `y`",
                "TOOL_PROMISE_USED 62 the items of `l` are promises",
            ],
        ),
        (
            "const log = console.log; log(mcp.a.b({}));",
            &["TOOL_PROMISE_USED 30 `mcp.a.b({})` is a promise, which prints as `Promise {}`"],
        ),
        (
            "let n = 1; n += mcp.a.b({}); return n;",
            &[
                "TOOL_PROMISE_USED 17 `mcp.a.b({})` is a promise, which converts to `[object Promise]`",
            ],
        ),
    ]);
}

#[test]
fn correct_programs_have_no_errors() {
    let is_warning = |line: &String| {
        let starts = ["TOOL_PROMISE_DROPPED", "TOOL_PROMISE_MAYBE_USED", "DYNAMIC_"];
        starts.iter().any(|start| line.starts_with(start))
    };
    let programs: Vec<&str> = include_str!("right.txt").lines().collect();
    assert!(programs.len() > 100, "{}", programs.len());
    for source in programs {
        let found = messages(source);
        assert!(found.iter().all(is_warning), "{source}\n{found:#?}");
    }
}

#[test]
fn a_use_is_only_a_warning_if_the_program_tests_for_promises_or_replaces_globals() {
    check(&[
        (
            "const f = (x) => (x.then ? x.then((y) => y.z) : x.z); return await f(mcp.a.b({}));",
            &["TOOL_PROMISE_MAYBE_USED 49 `x` is a promise, which has no `z`"],
        ),
        (
            "Promise = args.p; const p = mcp.a.b({}); return p.z;",
            &[
                "DYNAMIC_GLOBAL 1 this modifies a built-in object",
                "TOOL_PROMISE_MAYBE_USED 49 `p` is a promise, which has no `z`",
            ],
        ),
    ]);
}

#[test]
fn warns_about_promises_that_are_dropped_but_not_about_stored_ones() {
    check(&[
        ("mcp.a.b({}); return 1;", &["TOOL_PROMISE_DROPPED 1 this promise is not awaited"]),
        (
            "args.v && mcp.a.b({}); return 1;",
            &["TOOL_PROMISE_DROPPED 1 this promise is not awaited"],
        ),
        (
            "args.l.map((x) => mcp.a.b({ x })); return 1;",
            &["TOOL_PROMISE_DROPPED 1 these promises are not awaited"],
        ),
        (
            "args.l.forEach(mcp.a.b); return 1;",
            &["TOOL_PROMISE_DROPPED 16 `forEach` does not await its callback"],
        ),
        ("const l = [mcp.a.b({}), mcp.a.c({})]; l.reverse(); return await Promise.all(l);", &[]),
        ("const p = mcp.a.b({}); Object.assign(p, { id: 1 }); return await p;", &[]),
        ("return await new Promise((done, fail) => { mcp.a.b({}).then(done, fail); });", &[]),
        (
            "return await new Promise((done) => { mcp.a.b({}).then(done); });",
            &["TOOL_PROMISE_DROPPED 38 this promise is not awaited"],
        ),
    ]);
}

#[test]
fn reports_invalid_tool_names_and_look_alikes() {
    check(&[
        ("await mcp.a['b c']({});", &["INVALID_TOOL_NAME 7 `b c` cannot be a tool name"]),
        (
            "const { 'b c': run } = mcp.a; await run({});",
            &["INVALID_TOOL_NAME 9 `b c` cannot be a tool name"],
        ),
        (
            "if (args.never) { const s = mсp; }",
            &["UNKNOWN_NAME 29 `mсp` is not declared, and contains non-ASCII letters"],
        ),
        ("const run = (n) => mcp.a[n]({}); await run('b'); await run('b c');", &[]),
    ]);
}
