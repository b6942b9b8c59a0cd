//! Programs as models write them: each runs correctly, or is refused with its position and the correction.
//!
//! The cases are in `model_programs/*.ts`: a name after `////`, the expectations, and the program.
//! `// -> JSON` is the result, `// >> text` a part of the console output, `// ~~ text` a part of a warning, and
//! `// !! CODE line:column text` the refusal or failure, whose position and text are optional.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::cli::Project;
use crate::support::server::Server;

/// How many programs run at the same time.
const CONCURRENT: usize = 4;

/// The files that the longer programs read.
const FILES: &[(&str, &str)] = &[
    (
        "people.json",
        r#"[{"name":"Ann","born":"1990-05-01","team":"web"},{"name":"Ben","born":"1985-11-20","team":"ops"},{"name":"Cid","born":null,"team":"web"}]"#,
    ),
    (
        "data/sales.csv",
        "date,region,product,units,price\n2026-01-05,north,bolt,10,2.5\n2026-01-06,south,nut,40,1\n2026-01-06,north,nut,25,1\n2026-02-01,west,bolt,,2.5\n2026-02-03,south,gear,3,19.9\n",
    ),
    (
        "data/stock.json",
        r#"{"bolt":{"left":5,"reorder":20},"nut":{"left":100,"reorder":50},"gear":{"left":0,"reorder":2}}"#,
    ),
    (
        "logs/app.log",
        "2026-03-01T10:00:00Z INFO start\n2026-03-01T10:00:02Z ERROR db timeout after 2000ms\n2026-03-01T10:00:05Z WARN slow query 850ms\n2026-03-01T10:01:00Z ERROR db timeout after 3000ms\n2026-03-01T10:02:00Z INFO stop\n",
    ),
    (
        "logs/worker.log",
        "2026-03-01T10:00:01Z INFO job 1 done\n2026-03-01T10:00:03Z ERROR job 2 failed: no input\n",
    ),
    ("config/dev.json", r#"{"port":3000,"debug":true,"db":{"host":"localhost","pool":5}}"#),
    (
        "config/prod.json",
        r#"{"port":80,"debug":false,"db":{"host":"db.internal","pool":50},"region":"eu"}"#,
    ),
    (
        "src/index.ts",
        "import { add } from \"./math\";\n// TODO: handle errors\nconsole.log(add(1, 2));\n",
    ),
    (
        "src/math.ts",
        "export const add = (a: number, b: number) => a + b;\n// TODO: subtract\n// FIXME: overflow\n",
    ),
];

struct Case {
    name: String,
    expected: Vec<(String, String)>,
    program: String,
}

fn cases(text: &str) -> Vec<Case> {
    let parts = text.split("//// ").skip(1);
    let case = |part: &str| {
        let (name, mut rest) = part.split_once('\n').expect("a case has lines");
        let mut expected = Vec::new();
        while let Some((line, after)) = rest.split_once('\n')
            && let Some(line) = line.strip_prefix("// ")
            && let Some((kind @ ("->" | ">>" | "~~" | "!!"), what)) = line.split_once(' ')
        {
            expected.push((kind.to_owned(), what.to_owned()));
            rest = after;
        }
        assert!(!expected.is_empty(), "`{name}` expects nothing");
        Case { name: name.to_owned(), expected, program: rest.to_owned() }
    };
    parts.map(case).collect()
}

/// Returns the differences from the expectations.
fn faults(case: &Case, project: &Project) -> Vec<String> {
    let file = format!("{}.ts", case.name.replace(|c: char| !c.is_alphanumeric(), "_"));
    project.write(&file, &case.program);
    let output = project.run(&["exec", &file, "--json"]);
    let Ok(envelope) = serde_json::from_slice::<Value>(&output.stdout) else {
        return vec![format!("no answer: {}", String::from_utf8_lossy(&output.stderr))];
    };
    let plain = project.run(&["analyze", &file]);
    let analyzed = String::from_utf8_lossy(&plain.stderr).into_owned();
    let mut faults = Vec::new();
    let mut check = |holds: bool, what: &str| {
        if !holds {
            faults.push(what.to_owned());
        }
    };
    let fails = case.expected.iter().any(|(kind, _)| kind == "!!");
    let warns = case.expected.iter().any(|(kind, _)| kind == "~~");
    check(output.status.success() != fails, &format!("exit code {:?}", output.status.code()));
    let says_null = case.program.contains("return null");
    check(fails || says_null || !is_silent(&envelope), "a silent null");
    // If one of several concurrent calls fails, others may not have ended, and a warning states it.
    let is_expected =
        |warning: &Value| warns || fails && warning.to_string().contains("ended before its call");
    check(
        envelope["warnings"].as_array().is_none_or(|all| all.iter().all(is_expected)),
        "an unexpected warning",
    );
    for (kind, what) in &case.expected {
        match kind.as_str() {
            "->" => {
                let value: Value = serde_json::from_str(what).expect("a result is JSON");
                check(envelope["status"] == "success" && envelope["result"] == value, what);
            }
            ">>" => check(
                envelope["console"]
                    .to_string()
                    .contains(&json!(what).to_string().trim_matches('"').to_owned()),
                what,
            ),
            "~~" => {
                let words = what.split(' ').next().unwrap_or_default();
                let warnings = envelope["warnings"].to_string();
                let mut place = words.split(':');
                let is_present = if words == "TOOL_PROMISE_DROPPED" {
                    let place = what.split_once(' ').map_or(String::new(), |(_, place)| {
                        let (line, column) = place.split_once(':').expect("a place");
                        format!("line {line}, column {column}")
                    });
                    warnings.contains("await")
                        && analyzed.contains(words)
                        && warnings.contains(&place)
                } else if let (Some(line), Some(column)) = (place.next(), place.next())
                    && line.parse::<u32>().is_ok()
                {
                    let rest = what.split_once(' ').map_or("", |(_, rest)| rest);
                    warnings.contains(&format!("line {line}, column {column}: {rest}"))
                } else {
                    warnings.contains(what.as_str())
                };
                check(is_present, what);
            }
            _ => {
                let (code, rest) = what.split_once(' ').unwrap_or((what, ""));
                let (place, text) = match rest.split_once(' ') {
                    Some((place, text)) if place.starts_with(|c: char| c.is_ascii_digit()) => {
                        (place, text)
                    }
                    None if rest.starts_with(|c: char| c.is_ascii_digit()) => (rest, ""),
                    _ => ("", rest),
                };
                check(envelope["error_code"] == code, what);
                let mut at = place.split(':').filter_map(|number| number.parse::<u64>().ok());
                for name in ["line", "column"] {
                    let Some(number) = at.next() else { break };
                    check(envelope["details"][name] == number, &format!("{name} {number}"));
                }
                check(envelope["message"].as_str().unwrap_or_default().contains(text), text);
                if code == "PROMISE_NOT_AWAITED" {
                    check(output.status.code() == Some(2), "exit code 2");
                    check(analyzed.contains("TOOL_PROMISE_USED"), "reported by `analyze`");
                }
            }
        }
    }
    if !faults.is_empty() {
        let kept = ["status", "result", "error_code", "message", "details", "warnings", "console"];
        let shown: serde_json::Map<String, Value> = kept
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), envelope.get(*name)?.clone())))
            .collect();
        faults.push(format!("{:#}", Value::Object(shown)));
    }
    faults
}

/// Returns whether an answer contains neither a result, an error, output nor a warning.
fn is_silent(envelope: &Value) -> bool {
    let is_empty = |name: &str| envelope[name].as_array().is_none_or(Vec::is_empty);
    envelope["result"].is_null()
        && envelope["error_code"].is_null()
        && is_empty("console")
        && is_empty("warnings")
}

fn project() -> Project {
    let project = Project::of(&Server::shared().tenant()).allow(&["*"]);
    project.write(
        "orders.json",
        r#"[{"id":"A1","customer":"Ann","total":30,"paid":true},{"id":"A2","customer":"Ben","total":12.5,"paid":false},{"id":"A3","customer":"Ann","total":7.5,"paid":true}]"#,
    );
    project.write(
        "package.json",
        r#"{"name":"shop","version":"1.2.0","dependencies":{"left-pad":"1.3.0","zod":"3.0.0"}}"#,
    );
    project.write("todo.md", "# Todo\n- [ ] ship\n- [x] plan\n");
    std::fs::create_dir_all(project.path("notes")).expect("our own folder takes folders");
    project.write("notes/a.md", "# Alpha\n- [ ] ship it\n");
    project.write("notes/b.md", "# Beta\n- [ ] test it\n");
    for folder in ["config", "data", "logs", "src"] {
        std::fs::create_dir_all(project.path(folder)).expect("our own folder takes folders");
    }
    for (name, text) in FILES {
        project.write(name, text);
    }
    project
}

#[track_caller]
fn assert_all_as_expected(text: &str, least: usize) {
    let cases = cases(text);
    assert!(cases.len() >= least, "only {} cases", cases.len());
    let project = project();
    let (next, report) = (AtomicUsize::new(0), Mutex::new(String::new()));
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENT {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let faults = faults(case, &project);
                    if !faults.is_empty() {
                        let mut report = report.lock().expect("no thread panics with it");
                        let _ = writeln!(report, "\n//// {}\n{}", case.name, faults.join("\n"));
                    }
                }
            });
        }
    });
    let report = report.into_inner().expect("no thread panics with it");
    assert!(report.is_empty(), "{report}");
}

/// A program without `return` returns the value of its last expression, waits for the functions that it started, and
/// has a warning if there is no value.
#[test]
fn programs_without_a_return_give_their_last_value() {
    assert_all_as_expected(include_str!("model_programs/endings.ts"), 60);
}

/// Using a promise like its value is refused with the position; correct programs are accepted.
#[test]
fn promises_used_as_values_are_refused() {
    assert_all_as_expected(include_str!("model_programs/promises.ts"), 80);
}

/// Values that JSON cannot represent are refused with their path, or have a defined JSON form.
#[test]
fn results_without_a_json_form_are_refused_with_their_path() {
    assert_all_as_expected(include_str!("model_programs/results.ts"), 35);
}

/// Programs of ten to forty lines for typical tasks of an agent.
#[test]
fn longer_programs_return_the_expected_results() {
    assert_all_as_expected(include_str!("model_programs/tasks.ts"), 43);
}

/// Programs of ten to forty lines with one mistake or one surprise each.
#[test]
fn mistakes_in_longer_programs_are_reported_with_their_position() {
    assert_all_as_expected(include_str!("model_programs/mistakes.ts"), 59);
}

/// Long programs with many kinds of tools, most of which do not exist here. The error names the missing tool or its
/// failure; none is refused for its syntax.
#[test]
fn agent_programs_fail_only_for_missing_tools() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../analysis/tests/cases/agent");
    let mut programs: Vec<_> = std::fs::read_dir(folder)
        .expect("the analysis has its cases")
        .map(|entry| entry.expect("a folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ts"))
        .collect();
    programs.sort();
    assert!(programs.len() >= 45, "only {} programs", programs.len());
    let project = project();
    let mut report = String::new();
    for path in &programs {
        let code = std::fs::read_to_string(path).expect("a case is text");
        let (envelope, exit) = project.exec(&code);
        let code = envelope["error_code"].as_str().unwrap_or("none");
        let is_clear = match exit {
            0 => !is_silent(&envelope),
            // A server on the user's machine would have to be started first.
            3 => envelope["status"] == "approval_required",
            _ => {
                let names = envelope["message"].as_str().unwrap_or_default().contains('`');
                !matches!(code, "PROMISE_NOT_AWAITED" | "UNSUPPORTED_SYNTAX" | "PARSE_ERROR")
                    && (names || code == "PROGRAM_FAILED")
            }
        };
        if !is_clear {
            let _ = writeln!(report, "{}: {exit}, {code}: {}", path.display(), envelope["message"]);
        }
    }
    assert!(report.is_empty(), "{report}");
}
