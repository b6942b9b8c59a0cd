//! The analysis of the core language beside the walk over the tree: on all cases, and on programs that the walk misses.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::{Report, report};

#[path = "misses.rs"]
mod misses;
#[path = "speed.rs"]
mod speed;
use crate::Limits;
use crate::structure::lower::lower;

fn analysed(source: &str) -> Option<(Report, super::super::build::Built)> {
    let limits = Limits::default();
    let source = source.trim_start_matches('\u{feff}');
    let parsed = crate::parse::parse(source, &limits).ok()?;
    let built = super::super::build::build_by_tree(&parsed, source, &limits).ok()?;
    let core = lower(parsed.function()?);
    Some((report(&core, source, &limits), built))
}

/// Returns each call as `t2 data t1 by t1 args.x may many`, without what is empty.
fn told(source: &str) -> Vec<String> {
    let (report, _) = analysed(source).unwrap_or_else(|| panic!("{source} can be analysed"));
    let name = |places: &BTreeSet<usize>| {
        places.iter().map(|place| format!(" t{}", place + 1)).collect::<String>()
    };
    let line = |(place, task): (usize, &super::Told)| {
        let mut line = format!("t{}", place + 1);
        if !task.data.is_empty() {
            let _ = write!(line, " data{}", name(&task.data));
        }
        if !task.decided.is_empty() {
            let _ = write!(line, " by{}", name(&task.decided));
        }
        line
    };
    report.tasks.iter().enumerate().map(line).collect()
}

/// What the two analyses tell differently of one program.
#[derive(Default)]
struct Difference {
    lines: Vec<String>,
    /// What only the one in use tells.
    fewer: usize,
    /// What only the new one tells.
    more: usize,
}

fn difference(source: &str) -> Option<Difference> {
    let (report, built) = analysed(source)?;
    let mut out = Difference::default();
    let mut say = |line: String| out.lines.push(line);
    if report.dynamic != built.dynamic {
        say(format!("dynamic: {} was {}", report.dynamic, built.dynamic));
    }
    let old: Vec<(u32, &crate::Task)> =
        built.sites.iter().copied().zip(built.structure.tasks()).collect();
    let (mut fewer, mut more) = (0, 0);
    for (at, task) in &old {
        let new = report.tasks.iter().find(|new| new.at == *at && new.tool == task.tool);
        let Some(new) = new else {
            fewer += 1;
            say(format!("{} {} is not found", task.task, task.tool));
            continue;
        };
        let flags = |may: bool, many: bool| {
            (if may { "may" } else { "will" }, if many { "many" } else { "once" })
        };
        if (new.may, new.many) != (task.conditional, task.repeats) {
            let (now, was) = (flags(new.may, new.many), flags(task.conditional, task.repeats));
            say(format!("{}: {now:?} was {was:?}", task.task));
        }
        let of_old = |names: &[String]| -> BTreeSet<(u32, String)> {
            let found = old.iter().filter(|(_, one)| names.contains(&one.task));
            found.map(|(at, one)| (*at, one.task.clone())).collect()
        };
        let of_new = |places: &BTreeSet<usize>| -> BTreeSet<(u32, String)> {
            let found = places.iter().filter_map(|place| report.tasks.get(*place));
            found
                .filter_map(|one| {
                    let same =
                        old.iter().find(|(at, other)| *at == one.at && other.tool == one.tool)?;
                    Some((one.at, same.1.task.clone()))
                })
                .collect()
        };
        let mut now_decided = of_new(&new.decided);
        let own_place: usize = old.iter().position(|(_, one)| one.task == task.task).unwrap_or(0);
        // The form in use tells of earlier calls only what decides.
        now_decided.retain(|(_, name)| {
            old.iter().position(|(_, one)| one.task == *name).is_some_and(|place| place < own_place)
        });
        for (what, was, now) in [
            ("data", of_old(&task.data_from), of_new(&new.data)),
            ("by", of_old(&task.decided_by), now_decided),
        ] {
            for (_, name) in was.difference(&now) {
                fewer += 1;
                say(format!("{}: -{what} {name}", task.task));
            }
            for (_, name) in now.difference(&was) {
                more += 1;
                say(format!("{}: +{what} {name}", task.task));
            }
        }
        if task.from_args == new.inputs.is_empty() {
            say(format!("{}: args {:?} was {}", task.task, new.inputs, task.from_args));
        }
    }
    for new in &report.tasks {
        if !old.iter().any(|(at, task)| *at == new.at && task.tool == new.tool) {
            more += 1;
            say(format!("{} at {} is new", new.tool, new.at));
        }
    }
    (out.fewer, out.more) = (fewer, more);
    Some(out)
}

fn cases(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            cases(&path, out);
        } else if path.extension().is_some_and(|ending| ending == "ts") {
            out.push(path);
        }
    }
    out.sort();
}

/// Prints what is told of the program in the file that `PML_PROGRAM` names.
#[test]
fn one_program() {
    let Ok(path) = std::env::var("PML_PROGRAM") else { return };
    let source = std::fs::read_to_string(path).expect("a program is readable");
    let mut text = told(&source).join("\n");
    let (report, _) = analysed(&source).expect("it can be analysed");
    let _ = write!(text, "\n{} rounds\n", report.rounds);
    for task in &report.tasks {
        let _ = writeln!(text, "{task:?}");
    }
    for line in difference(&source).map_or_else(Vec::new, |found| found.lines) {
        let _ = writeln!(text, "{line}");
    }
    if let Ok(path) = std::env::var("PML_REPORT") {
        std::fs::write(path, text).expect("the report can be written");
    }
}

/// Prints what differs, with `--nocapture`; `PML_CASE` picks the cases whose path contains it.
#[test]
fn the_cases_beside_the_analysis_in_use() {
    let mut paths = Vec::new();
    cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases"), &mut paths);
    let wanted = std::env::var("PML_CASE").unwrap_or_default();
    let (mut same, mut other, mut fewer, mut more) = (0, 0, 0, 0);
    let mut text = String::new();
    for path in paths.iter().filter(|path| path.to_string_lossy().contains(&wanted)) {
        let source = std::fs::read_to_string(path).expect("a case is readable");
        let name = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(path);
        let began = std::time::Instant::now();
        let Some(found) = stacker::grow(64 << 20, || difference(&source)) else { continue };
        if began.elapsed().as_millis() > 300 {
            let _ = writeln!(text, "slow {} {:?}", name.display(), began.elapsed());
        }
        if found.lines.is_empty() {
            same += 1;
            continue;
        }
        other += 1;
        fewer += found.fewer;
        more += found.more;
        let _ = writeln!(text, "== {}", name.display());
        for line in found.lines {
            let _ = writeln!(text, "   {line}");
        }
    }
    let _ = writeln!(text, "{same} alike, {other} differ: {fewer} fewer, {more} more");
    if let Ok(path) = std::env::var("PML_REPORT") {
        std::fs::write(path, &text).expect("the report can be written");
    }
    if wanted.is_empty() {
        // Each of those that are left was looked at: see what is printed.
        assert!(same >= 287 && fewer <= 17 && more <= 64, "{text}");
    }
}
