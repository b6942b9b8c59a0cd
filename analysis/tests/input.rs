//! The input of a program is followed as a result is: where `args` is taken for the
//! result of a call, that result flows to the same calls.

use std::path::{Path, PathBuf};

use analysis::{Argument, Limits, Task, analyze};

/// Stands before a program and gives it other `args`.
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

/// Whether all of a task's arguments are told as they are, so that it does not
/// matter what has chosen them.
fn is_told(task: &Task) -> bool {
    fn told(argument: &Argument) -> bool {
        match argument {
            Argument::Literal { .. } | Argument::Reference { .. } => true,
            Argument::Object { fields } => fields.values().all(told),
            Argument::Array { items } => items.iter().all(told),
            Argument::Parameter { .. } | Argument::Expression { .. } => false,
        }
    }
    task.arguments.values().all(told)
}

#[test]
fn the_input_flows_as_a_result_does() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut paths = Vec::new();
    programs(&root.join("cases"), &mut paths);
    paths.sort();
    let (mut compared, mut given, mut wrong) = (0, 0, Vec::new());
    for path in &paths {
        let source = String::from_utf8_lossy(&std::fs::read(path).expect("readable")).into_owned();
        let with_input = analyze(&source, &Limits::default());
        let with_result = analyze(&format!("{INSTEAD}{source}"), &Limits::default());
        // Some cases are about what is refused, or about a first line.
        let aside = !source.contains("args") || source.contains("globalThis.args");
        if aside || !with_input.can_run() || !with_result.can_run() {
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
            if task.from_args != flows && !(flows && is_told(task)) {
                let name = path.strip_prefix(&root).unwrap_or(path).display();
                wrong.push(format!("{name}: {} ({}), line {}", task.task, task.tool, task.line));
            }
        }
    }
    println!("{compared} programs compared, {given} calls are given the input");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(compared > 80 && given > 80, "{compared} programs, {given} calls");
}
