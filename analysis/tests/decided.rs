//! The tasks that decide on a call are separate from those whose results flow into it.

use std::fmt::Write;

use analysis::{Limits, Task, analyze, plan};
use protocol::RoutingRules;

fn number(task: &str) -> u32 {
    task.trim_start_matches('t').parse().expect("a task has a number")
}

/// Returns each task as `t2 data t1 by t1`, omitting empty lists.
fn summaries(source: &str) -> Vec<String> {
    let analysis = analyze(source, &Limits::default());
    assert!(analysis.can_run() && !analysis.dynamic, "{source}");
    let plan = plan(&analysis, &RoutingRules::shipped());
    let line = |task: &Task| {
        let mut line = task.task.clone();
        for (word, tasks) in [("data", &task.data_from), ("by", &task.decided_by)] {
            if !tasks.is_empty() {
                let _ = write!(line, " {word} {}", tasks.join(" "));
            }
        }
        let planned = plan.tasks.iter().find(|planned| planned.id == task.task);
        let planned = planned.unwrap_or_else(|| panic!("{} is planned", task.task));
        for id in &task.decided_by {
            let is_later = number(id) >= number(&task.task);
            assert!(task.depends_on.contains(id) != is_later, "{source}: {id} comes before");
            assert!(planned.decided_by.contains(id), "{source}: {id} is in the plan");
        }
        let named = |id: &String| task.data_from.contains(id) || task.decided_by.contains(id);
        let waits = source.contains(".then(") || source.contains("case await");
        assert!(task.depends_on.iter().all(named) || waits, "{source}: {line}");
        line
    };
    analysis.structure.tasks().map(line).collect()
}

const ONE: &str = "const r = await mcp.a.one({});\n";
const TWO: &str = "const s = await mcp.a.two({});\n";

#[test]
fn decided_by_lists_the_deciding_tasks() {
    for (rest, expected) in [
        ("await mcp.a.use({ r });", "t2 data t1"),
        ("if (r.ok) await mcp.a.use({});", "t2 by t1"),
        ("if (r.ok) await mcp.a.use({ r });", "t2 data t1 by t1"),
        ("if (!r.ok) return; await mcp.a.use({ r });", "t2 data t1 by t1"),
        ("if (!r.ok) throw new Error(r.why); await mcp.a.use({ r });", "t2 data t1 by t1"),
        ("for (const x of r.list) await mcp.a.use({ x });", "t2 data t1 by t1"),
        ("for (const x of r.list) await mcp.a.use({});", "t2 by t1"),
        ("r.list.map((x) => mcp.a.use({ x }));", "t2 data t1 by t1"),
        ("r.ok && await mcp.a.use({});", "t2 by t1"),
        ("const f = r.ok ? mcp.a.use : mcp.a.use2; await f({});", "t2 by t1, t3 by t1"),
        ("try { await mcp.a.use({ r }); } catch { await mcp.a.end({}); }", "t2 data t1, t3 by t2"),
        ("switch (r.kind) { case 1: await mcp.a.use({}); }", "t2 by t1"),
        ("switch (r.kind) { case await mcp.a.use({}): break; }", "t2"),
        // Waiting for a promise decides nothing.
        ("await mcp.a.two({}).then((s) => mcp.a.use({ s }));", "t2, t3 data t2"),
        ("await mcp.a.two({}).then(() => mcp.a.use({}));", "t2, t3"),
        ("await mcp.a.two({}).catch(() => mcp.a.use({}));", "t2, t3 by t2"),
    ] {
        assert_eq!(summaries(&format!("{ONE}{rest}"))[1..].join(", "), expected, "{rest}");
    }
}

/// A tool in a function is called by all calls of the function.
#[test]
fn all_calls_of_a_function_decide() {
    const USE: &str = "const use = async (x) => { await mcp.a.use({ x }); };\n";
    for (rest, expected) in [
        ("await use(1); await use(2);", "t3"),
        ("await use(1); if (r.ok) await use(2);", "t3 by t1"),
        ("if (r.ok) await use(1); await use(2);", "t3 by t1"),
        ("if (r.ok) await use(1); if (s.ok) await use(2);", "t3 by t1 t2"),
        ("if (r.ok) await use(1); else await use(s);", "t3 data t2 by t1"),
        ("await use(1); for (const x of s.list) await use(x);", "t3 data t2 by t2"),
        ("await use(1); s.list.forEach((x) => use(x));", "t3 data t2 by t2"),
        ("const go = () => use(1); if (r.ok) go(); if (s.ok) go();", "t3 by t1 t2"),
        ("const go = () => use(1); go(); if (s.ok) use(2);", "t3 by t2"),
        // A later task decides whether the call is made again.
        ("await use(1); if (await mcp.a.three({})) await use(2);", "t3 by t4, t4"),
    ] {
        let found = summaries(&format!("{ONE}{TWO}{USE}{rest}"));
        assert_eq!(found[2..].join(", "), expected, "{rest}");
    }
    for (rest, expected) in [
        (
            "let last = 'a'; const set = () => { last = 'b'; };
             if (r.ok) set(); if (s.ok) set(); await mcp.a.end({ last });",
            "t3 data t1 t2",
        ),
        // The second call changes nothing.
        (
            "let last = 'a'; const set = () => { last = 'b'; };
             set(); if (s.ok) set(); await mcp.a.end({ last });",
            "t3",
        ),
        (
            "let last = 'a'; const set = (to) => { last = to; };
             set('b'); if (s.ok) set('c'); await mcp.a.end({ last });",
            "t3 data t2",
        ),
        // What decides on both calls does not flow into what they write.
        (
            "if (r.ok) {
               let last = 'a'; const set = (to) => { last = to; };
               set('b'); if (s.ok) set('c'); await mcp.a.end({ last });
             }",
            "t3 data t2 by t1",
        ),
    ] {
        assert_eq!(summaries(&format!("{ONE}{TWO}{rest}"))[2..].join(", "), expected, "{rest}");
    }
}

/// Structures stored by older versions have no such list.
#[test]
fn decided_by_may_be_missing_in_json() {
    let analysis = analyze(&format!("{ONE}if (r) await mcp.a.use({{}});"), &Limits::default());
    let mut json = serde_json::to_value(&analysis.structure).expect("it is JSON");
    for node in json["nodes"].as_array_mut().expect("a list") {
        node.as_object_mut().expect("an object").remove("decided_by");
    }
    let read: analysis::StaticStructure = serde_json::from_value(json).expect("it is a structure");
    assert!(read.tasks().all(|task| task.decided_by.is_empty()));
    assert_eq!(read.tasks().count(), 2);
}

/// No task decides, but a run may still skip the call.
#[test]
fn a_call_without_deciders_may_be_conditional() {
    for before in [
        "await Promise.race(n === 1 ? [1] : []);",
        "function* g() { if (n === 1) throw 1; yield 1; } g().next();",
        "async function* g() { if (n === 1) throw 1; yield 1; } await g().next();",
    ] {
        let source = format!(
            "let n = 0; n = args.length; n = 1;
             await (async () => {{ {before} }})().then(() => mcp.a.b({{}})).catch(() => 1);"
        );
        let analysis = analysis::analyze(&source, &analysis::Limits::default());
        let tasks: Vec<_> = analysis.structure.tasks().collect();
        assert!(tasks.iter().all(|task| task.conditional), "{before}: {tasks:?}");
        assert_eq!(tasks.len(), 1, "{before}");
    }
}
