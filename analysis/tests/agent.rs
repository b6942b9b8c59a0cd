//! Analyses the programs of `cases/agent/` and compares their tasks with the hand-written `.edges` files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use analysis::{Limits, Severity, Task, analyze};

#[path = "agent/call_ends.rs"]
mod call_ends;

use call_ends::call_ends;

/// A call that the analysis reports as running any number of times, although a reader can determine more.
struct Allowed {
    program: &'static str,
    call: &'static str,
    reason: &'static str,
}

const ONE_PLACE: &str = "one place in a loop calls one of three tools in each iteration; only counting shows that each is called exactly once";

const ALLOWED: &[Allowed] = &[
    Allowed { program: "git_commands_by_name", call: "t1", reason: ONE_PLACE },
    Allowed { program: "git_commands_by_name", call: "t2", reason: ONE_PLACE },
    Allowed { program: "git_commands_by_name", call: "t3", reason: ONE_PLACE },
];

/// A call, according to the `.edges` file or to the analysis.
#[derive(Debug, Clone, PartialEq)]
struct Call {
    tool: String,
    /// Whether some run without an error does not reach it.
    may: bool,
    many: bool,
    after: BTreeSet<String>,
}

impl Call {
    fn shown(&self) -> String {
        let after: Vec<&str> = self.after.iter().map(String::as_str).collect();
        let after = if after.is_empty() { "-".into() } else { after.join(" ") };
        let (will, once) =
            (if self.may { "may" } else { "will" }, if self.many { "many" } else { "once" });
        format!("{} {will} {once} -> {after}", self.tool)
    }
}

/// Reads the calls of an `.edges` file, in their order.
fn expected(text: &str) -> Vec<(String, Call)> {
    let mut calls = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with("egress ") {
            continue;
        }
        let (head, after) = line.split_once(" -> ").unwrap_or_else(|| panic!("no `->`: {line}"));
        let [id, tool, will, once] = head.split(' ').collect::<Vec<_>>()[..] else {
            panic!("not four words: {line}")
        };
        assert!(matches!(will, "will" | "may") && matches!(once, "once" | "many"), "{line}");
        let after = after.split(' ').filter(|id| *id != "-").map(str::to_owned).collect();
        let (may, many) = (will == "may", once == "many");
        calls.push((id.to_owned(), Call { tool: tool.to_owned(), may, many, after }));
    }
    calls
}

/// Returns the tasks under the ids of the `.edges` file.
fn found(source: &str, tasks: &[&Task], expected: &[(String, Call)]) -> Vec<(String, Call)> {
    let ends = call_ends(source);
    let mut ordered: Vec<&Task> = tasks.to_vec();
    let end = |task: &Task| {
        let place = (task.line, task.column);
        *ends.get(&place).unwrap_or_else(|| panic!("no call begins at {place:?}"))
    };
    ordered.sort_by_key(|task| end(task));
    // Several tools that one place can call are in the order of their lines.
    let mut from = 0;
    for same in ordered.chunk_by_mut(|one, other| end(one) == end(other)) {
        let lines = expected.get(from..).unwrap_or_default();
        same.sort_by_key(|task| {
            lines.iter().position(|(_, call)| *call.tool == *task.tool.as_str())
        });
        from += same.len();
    }
    let name = |at: usize| expected.get(at).map_or_else(|| format!("x{at}"), |(id, _)| id.clone());
    let names: BTreeMap<&str, String> =
        ordered.iter().enumerate().map(|(at, task)| (task.task.as_str(), name(at))).collect();
    let call = |task: &&Task| Call {
        tool: task.tool.to_string(),
        may: task.conditional || task.repeats,
        many: task.repeats,
        after: task.depends_on.iter().map(|id| names[id.as_str()].clone()).collect(),
    };
    ordered.iter().enumerate().map(|(at, task)| (name(at), call(task))).collect()
}

/// Returns `Some` if a call differs from what is expected.
fn difference(program: &str, id: &str, wanted: &Call, got: &Call, used: &mut [bool]) -> Option<()> {
    let mut wanted = wanted.clone();
    // A call that runs any number of times may also not run at all.
    wanted.may |= wanted.many && got.many;
    if wanted == *got {
        return None;
    }
    for (at, allowed) in ALLOWED.iter().enumerate() {
        if (allowed.program, allowed.call) != (program, id) {
            continue;
        }
        if (Call { may: true, many: true, ..wanted.clone() }) == *got {
            used[at] = true;
            return None;
        }
    }
    Some(())
}

fn check(program: &str, source: &str, edges: &str, used: &mut [bool]) -> String {
    let mut out = String::new();
    let analysis = analyze(source, &Limits::default());
    if analysis.dynamic {
        let _ = writeln!(out, "  is dynamic");
    }
    for found in &analysis.diagnostics {
        if analysis.dynamic || found.severity == Severity::Error {
            let _ = writeln!(out, "  {}:{} {}", found.line, found.column, found.message);
        }
    }
    let expected = expected(edges);
    let tasks: Vec<&Task> = analysis.structure.tasks().collect();
    let found = found(source, &tasks, &expected);
    for at in 0..expected.len().max(found.len()) {
        match (expected.get(at), found.get(at)) {
            (Some((id, wanted)), Some((_, got))) => {
                if difference(program, id, wanted, got, used).is_some() {
                    let _ = writeln!(out, "  {id} expected {}", wanted.shown());
                    let _ = writeln!(out, "  {id} got      {}", got.shown());
                }
            }
            (Some((id, wanted)), None) => {
                let _ = writeln!(out, "  {id} expected {}, which is not found", wanted.shown());
            }
            (None, Some((id, got))) => {
                let _ = writeln!(out, "  {id} got {}, which is not expected", got.shown());
            }
            (None, None) => {}
        }
    }
    out
}

#[test]
fn agent_programs_have_their_edges() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/agent");
    let mut programs: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder is readable")
        .map(|entry| entry.expect("an entry is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ts"))
        .collect();
    programs.sort();
    assert!(programs.len() >= 50, "only {} programs", programs.len());
    let mut used = vec![false; ALLOWED.len()];
    let mut failed = String::new();
    let mut count = 0;
    for path in &programs {
        let program = path.file_stem().expect("a program has a name").to_string_lossy();
        let source = std::fs::read_to_string(path).expect("a program is readable");
        let edges =
            std::fs::read_to_string(path.with_extension("edges")).expect("edges are readable");
        let wrong = check(&program, &source, &edges, &mut used);
        if !wrong.is_empty() {
            count += 1;
            let _ = write!(failed, "{program}\n{wrong}");
        }
    }
    for (allowed, used) in ALLOWED.iter().zip(used) {
        assert!(!allowed.reason.is_empty());
        if !used {
            let _ = writeln!(failed, "{} {} needs no exception", allowed.program, allowed.call);
        }
    }
    assert!(failed.is_empty(), "{count} of {} programs are wrong:\n{failed}", programs.len());
}
