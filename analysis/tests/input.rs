//! `args` is followed like the result of a call: if a program gets `args` from a call
//! instead, the result of that call flows to the same calls.

use std::path::{Path, PathBuf};

use analysis::{Argument, Limits, Task, analyze};

/// The prefix that gives a program the result of a call as `args`.
const INSTEAD: &str = "const args = await mcp.given.instead({}); ";

fn programs(folder: &Path, out: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("the folder is readable");
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            programs(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "ts") {
            out.push(path);
        }
    }
}

/// Returns whether all arguments of a task are known exactly, so that it does not
/// matter what decided on them.
fn is_exact(task: &Task) -> bool {
    fn exact(argument: &Argument) -> bool {
        match argument {
            Argument::Literal { .. } | Argument::Reference { .. } => true,
            Argument::Object { fields } => fields.values().all(exact),
            Argument::Array { items } => items.iter().all(exact),
            Argument::Parameter { .. } | Argument::Expression { .. } => false,
        }
    }
    task.arguments.values().all(exact)
}

#[test]
fn args_flow_like_the_result_of_a_call() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut paths = Vec::new();
    programs(&root.join("cases"), &mut paths);
    paths.sort();
    let (mut compared, mut given, mut wrong) = (0, 0, Vec::new());
    for path in &paths {
        let source = String::from_utf8_lossy(&std::fs::read(path).expect("readable")).into_owned();
        let with_input = analyze(&source, &Limits::default());
        let with_result = analyze(&format!("{INSTEAD}{source}"), &Limits::default());
        // Cases that are refused, or that do not use `args`, are skipped.
        let is_skipped = !source.contains("args") || source.contains("globalThis.args");
        if is_skipped || !with_input.can_run() || !with_result.can_run() {
            continue;
        }
        compared += 1;
        let tasks: Vec<&Task> = with_input.structure.tasks().collect();
        let others: Vec<&Task> = with_result.structure.tasks().skip(1).collect();
        let tools = |tasks: &[&Task]| {
            tasks.iter().map(|task| (task.line, task.tool.to_string())).collect::<Vec<_>>()
        };
        assert_eq!(tools(&tasks), tools(&others), "{}", path.display());
        for (task, other) in tasks.iter().zip(&others) {
            let flows = other.data_from.iter().any(|id| id == "t1");
            given += usize::from(task.from_args);
            if task.from_args != flows && !(flows && is_exact(task)) {
                let name = path.strip_prefix(&root).unwrap_or(path).display();
                wrong.push(format!("{name}: {} ({}), line {}", task.task, task.tool, task.line));
            }
        }
    }
    println!("{compared} programs compared, {given} calls are given the input");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(compared > 80 && given > 80, "{compared} programs, {given} calls");
}
