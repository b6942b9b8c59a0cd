//! The order of calls: sequential unless the program starts them together.

use analysis::{Limits, analyze};
use protocol::Step;

/// Formats the steps of a program, with the actions in place of the task ids.
fn steps(source: &str) -> String {
    let analysis = analyze(source, &Limits::default());
    assert!(analysis.structure.tasks().count() > 0, "{source}: {:?}", analysis.diagnostics);
    let name = |id: &String| {
        let task = analysis.structure.tasks().find(|task| task.task == *id);
        task.expect("a step names tasks of the program").tool.action().to_owned()
    };
    let mut steps: Vec<String> = Vec::new();
    for Step { tasks, together, unawaited, any_time, repeats_from } in &analysis.order {
        let names: Vec<String> = tasks.iter().map(name).collect();
        let mut text = names.join(if *together { "+" } else { " " });
        if *together && names.len() == 1 {
            text += "+";
        }
        if let Some(unawaited) = unawaited {
            text += &unawaited.until.map_or("~".to_owned(), |until| format!("~{until}"));
        }
        if *any_time {
            text += "?";
        }
        text += &repeats_from.iter().map(|from| format!("^{from}")).collect::<String>();
        steps.push(text);
    }
    steps.join(" | ")
}

/// In the cases, `$a` … `$f` are tools with these names.
#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (source, expected) in cases {
        let mut program = (*source).to_owned();
        for letter in ['a', 'b', 'c', 'd', 'e', 'f'] {
            program = program.replace(&format!("${letter}"), &format!("mcp.x.{letter}"));
        }
        assert_eq!(steps(&program), *expected, "{source}");
    }
}

#[test]
fn an_awaited_call_is_a_separate_step() {
    check(&[
        ("await $a({}); await $b({}); await $c({})", "a | b | c"),
        (
            "const x = await $a({}); const y = (await $b({})) as any; return $c({ x, y })",
            "a | b | c",
        ),
        ("await $a({ x: await $b({}) })", "b | a"),
        ("if (args.x) { await $a({}) } else { await $b({}) } await $c({})", "a | b | c"),
        ("try { await $a({}) } catch { await $b({}) } finally { await $c({}) }", "a | b | c"),
        ("args.x && await $a({}); await (args.y ? $b({}) : $c({}))", "a | b | c"),
        (
            "await $a({}).then((x: any) => $b({ x })).catch(() => $c({})); await $d({})",
            "a | b | c | d",
        ),
        ("let x; x = await $a?.({}); await $b({})", "a | b"),
        ("switch (await $a({})) { case 1: await $b({}); default: await $c({}) }", "a | b | c"),
        ("return (await $a({})) ?? $b({})", "a | b"),
    ]);
}

#[test]
fn calls_started_together_share_a_step() {
    check(&[
        ("await $a({}); await Promise.all([$b({}), $c({})]); await $d({})", "a | b+c | d"),
        (
            "await Promise.allSettled([$a({}), (async () => { await $b({}); await $c({}) })()])",
            "a+b+c",
        ),
        ("const p = $a({}); const q = $b({}); await Promise.all([p, q]); await $c({})", "a+b | c"),
        ("const [x, y] = await Promise.all([$a({}), $b({})]); await $c({ x, y })", "a+b | c"),
        ("await Promise.all(args.l.map((x: any) => $a({ x }))); await $b({})", "a+ | b"),
        (
            "await Promise.all(args.l.map(async (x: any) => { await $a({ x }); await $b({}) })); await $c({})",
            "a+b | c",
        ),
        (
            "const ps = args.l.map(async (x: any) => $a({ x })); await Promise.all(ps); await $b({})",
            "a+ | b",
        ),
        (
            "const ps: any[] = []; for (const x of args.l) ps.push($a({ x })); await Promise.all(ps); await $b({})",
            "a^1 | b",
        ),
    ]);
}

#[test]
fn unawaited_calls_overlap_later_steps() {
    check(&[
        ("$a({}); await $b({})", "a~ | b"),
        ("const p = $a({}); await $b({}); await p; await $c({})", "a~2 | b | c"),
        ("const p = $a({}); await $b({}); if (args.x) await p; await $c({})", "a~ | b | c"),
        ("let p = $a({}); await $b({}); await p; await $c({})", "a~2 | b | c"),
        ("let p = $a({}); p = $b({}); await p; await $c({})", "a+b~ | c"),
        ("await Promise.race([$a({}), $b({})]); await $c({})", "a+b~ | c"),
        (
            "args.l.forEach(async (x: any) => { await $a({ x }); await $b({}) }); await $c({})",
            "a+b~ | c",
        ),
        ("await args.l.map((x: any) => $a({ x })); await $b({})", "a+~ | b"),
        ("const ps = args.l.map((x: any) => $a({ x })); await ps; await $b({})", "a+~ | b"),
        (
            "const ps: any[] = []; ps.push($a({})); ps.length = 0; await $b({}); await Promise.all(ps); await $c({})",
            "a~ | b | c",
        ),
        ("(async () => { await $a({}); await $b({}) })(); await $c({})", "a+b~ | c"),
        ("await Promise.all([(async () => { $a({}); await $b({}) })()]); await $c({})", "a+b~ | c"),
        ("setTimeout(() => $a({}), 1); await $b({})", "a+~ | b"),
    ]);
}

#[test]
fn loops_repeat_their_steps() {
    check(&[
        (
            "await $a({}); for (const x of args.l) { await $b({ x }); await $c({}) } await $d({})",
            "a | b | c^2 | d",
        ),
        ("while (await $a({})) { for (;;) { await $b({}) } }", "a | b^2^1"),
        ("do { await $a({}) } while (await $b({})); await $c({})", "a | b^1 | c"),
        (
            "for (const x of await $a({})) { const p = $b({ x }); await $c({}); await p }",
            "a | b~3 | c^2",
        ),
    ]);
}

/// The calls in a function appear at each call of the function.
#[test]
fn functions_are_followed_at_their_calls() {
    check(&[
        ("async function s() { await $a({}) } await s(); await $b({}); await s()", "a | b | a"),
        ("const s = async () => { await $a({}) }; await $b({}); await s()", "b | a"),
        ("main(); async function main() { await $a({}); await $b({}) }", "a | b"),
        (
            "async function main() { await s(); await $b({}) } const s = async () => $a({}); main().catch(console.error)",
            "a | b",
        ),
        ("(async () => { await $a({}); await $b({}) })()", "a | b"),
        (
            "async function retry(f: any) { for (let i = 0; i < 3; i++) { try { return await f() } catch {} } } await retry(() => $a({})); await $b({})",
            "a^1 | b",
        ),
        (
            "const go = (x: any) => $a({ x }); await go(1); await $b({}); go(2); await $c({})",
            "a | b | a~ | c",
        ),
    ]);
}

/// They are not ordered after anything.
#[test]
fn functions_called_indirectly_can_run_at_any_time() {
    check(&[
        (
            "const api = { go: async () => { await $a({}) } }; await $b({}); await api.go()",
            "a? | b",
        ),
        ("async function s() { await $a({}) } const t = s; await $b({}); await t()", "a? | b"),
        (
            "async function walk(x: any) { if (!x) return; await $a({ x }); await walk(x.y); await $b({}) } await walk(1); await $c({})",
            "a b? | c",
        ),
        ("class T { async go() { await $a({}) } } await $b({}); await new T().go()", "a? | b"),
        (
            "async function s() { await $a({}) } const o = { get x() { return s() } }; await s(); await $b({}); await o.x",
            "a? | b",
        ),
        ("function* g() { yield $a({}) } await $b({}); for (const x of g()) await x", "a? | b"),
    ]);
}

/// The walk gives up in bounded time.
#[test]
fn exponential_call_trees_have_no_order() {
    let mut source = "const f0 = async () => { await mcp.x.a({}) };\n".to_owned();
    for n in 1..30 {
        source +=
            &format!("const f{n} = async () => {{ await f{}(); await f{}() }};\n", n - 1, n - 1);
    }
    source += "await f29(); await mcp.x.b({})";
    assert_eq!(steps(&source), "a b?");
}
