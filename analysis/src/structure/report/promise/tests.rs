//! Programs that misuse promises, and programs that do not.

use crate::Limits;
use crate::structure::report::build;

/// Returns each finding as `CODE column message`, for a program of one line.
fn told(source: &str) -> Vec<String> {
    let limits = Limits::default();
    let parsed =
        crate::parse::parse(source, &limits).unwrap_or_else(|found| panic!("{source}: {found:?}"));
    let found = build(&parsed, source, &limits).expect("it is not refused").findings;
    let located = found.into_iter().map(|found| found.locate(source));
    located
        .map(|found| format!("{} {} {}", found.code.as_str(), found.column, found.message))
        .collect()
}

/// Programs and how what is told of them begins.
fn hold(programs: &[(&str, &[&str])]) {
    for (source, expected) in programs {
        let told = told(source);
        let holds = told.len() == expected.len()
            && told.iter().zip(*expected).all(|(told, start)| told.starts_with(start));
        assert!(holds, "{source}\n{told:#?}\n{expected:#?}");
    }
}

#[test]
fn a_promise_is_followed_to_where_it_is_used() {
    hold(&[
        (
            "const f = (x) => x.length; return f(mcp.a.b({}));",
            &[
                "TOOL_PROMISE_USED 18 `x` is a promise, which has no `length`; write `(await x).length`",
            ],
        ),
        (
            "const f = ({ x }) => x; return f(mcp.a.b({}));",
            &["TOOL_PROMISE_USED 34 `mcp.a.b({})` is a promise, which has no parts to take out"],
        ),
        (
            "const l = args.l.map(async (x) => x); return l.filter(({ ok }) => ok);",
            &["TOOL_PROMISE_USED 46 `l` is a promise, which has no parts to take out"],
        ),
        (
            "const o = { p: mcp.a.b({}) }; await mcp.a.c({ in: [o] });",
            &["TOOL_PROMISE_USED 16 `mcp.a.b({})` is a promise, and a tool takes values"],
        ),
        (
            "class A { get p() { return mcp.a.b({}); } } if (new A().p) { return 1; }",
            &["TOOL_PROMISE_USED 49 `new A().p` is a promise, which counts as true"],
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
            &["TOOL_PROMISE_USED 17 `mcp.a.b({})` is a promise, whose text is `[object Promise]`"],
        ),
    ]);
}

#[test]
fn what_may_be_something_else_refuses_no_program() {
    let is_warning = |line: &String| {
        let starts = ["TOOL_PROMISE_DROPPED", "TOOL_PROMISE_MAYBE_USED", "DYNAMIC_"];
        starts.iter().any(|start| line.starts_with(start))
    };
    let programs: Vec<&str> = include_str!("right.txt").lines().collect();
    assert!(programs.len() > 100, "{}", programs.len());
    for source in programs {
        let told = told(source);
        assert!(told.iter().all(is_warning), "{source}\n{told:#?}");
    }
}

#[test]
fn a_use_is_doubted_where_the_program_looks_for_promises_or_replaces_globals() {
    hold(&[
        (
            "const f = (x) => (x.then ? x.then((y) => y.z) : x.z); return await f(mcp.a.b({}));",
            &["TOOL_PROMISE_MAYBE_USED 49 `x` is a promise, which has no `z`"],
        ),
        (
            "Promise = args.p; const p = mcp.a.b({}); return p.z;",
            &[
                "DYNAMIC_GLOBAL 1 what the engine offers is changed",
                "TOOL_PROMISE_MAYBE_USED 49 `p` is a promise, which has no `z`",
            ],
        ),
    ]);
}

#[test]
fn a_promise_that_nobody_gets_is_dropped_and_one_that_is_kept_is_not() {
    hold(&[
        ("mcp.a.b({}); return 1;", &["TOOL_PROMISE_DROPPED 1 nothing awaits this promise"]),
        (
            "args.v && mcp.a.b({}); return 1;",
            &["TOOL_PROMISE_DROPPED 1 nothing awaits this promise"],
        ),
        (
            "args.l.map((x) => mcp.a.b({ x })); return 1;",
            &["TOOL_PROMISE_DROPPED 1 nothing awaits these promises"],
        ),
        (
            "args.l.forEach(mcp.a.b); return 1;",
            &["TOOL_PROMISE_DROPPED 16 `forEach` awaits nothing"],
        ),
        ("const l = [mcp.a.b({}), mcp.a.c({})]; l.reverse(); return await Promise.all(l);", &[]),
        ("const p = mcp.a.b({}); Object.assign(p, { id: 1 }); return await p;", &[]),
        ("return await new Promise((done, fail) => { mcp.a.b({}).then(done, fail); });", &[]),
        (
            "return await new Promise((done) => { mcp.a.b({}).then(done); });",
            &["TOOL_PROMISE_DROPPED 38 nothing awaits this promise"],
        ),
    ]);
}

#[test]
fn names_that_cannot_be_are_told() {
    hold(&[
        (
            "await mcp.a['b c']({});",
            &["INVALID_TOOL_NAME 7 this names no tool: `b c` cannot be a tool name"],
        ),
        (
            "const { 'b c': run } = mcp.a; await run({});",
            &["INVALID_TOOL_NAME 9 this names no tool: `b c` cannot be a tool name"],
        ),
        (
            "if (args.never) { const s = mсp; }",
            &["UNKNOWN_NAME 29 `mсp` is not declared, and has letters that look like others"],
        ),
        ("const run = (n) => mcp.a[n]({}); await run('b'); await run('b c');", &[]),
    ]);
}
