//! `pml exec --mock RUN`: calls get the recorded answers of another run. What it lacks is decided about and made as usual.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::{PATIENCE, poll};

/// Reads two files and writes one. The program of the record.
const PROGRAM: &str = "const read = (path) => mcp.filesystem.read_text_file({ path });
const texts = [await read('a.txt'), await read('a.txt')];
await mcp.filesystem.write_file({ path: 'out.txt', content: texts.join() });
return texts.concat(await read('b.txt').catch((error) => error.message));";

/// Runs a program with the answers of a run; returns what it prints as JSON, and the exit code.
#[track_caller]
fn mocked(project: &Project, run: &str, code: &str) -> (Value, i32) {
    project.write("mocked.ts", code);
    let output = project.run(&["exec", "mocked.ts", "--mock", run, "--json"]);
    let shown = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    (shown, output.status.code().unwrap())
}

#[track_caller]
fn shown(project: &Project, command: &[&str]) -> Value {
    let output = project.run(&[command, &["--json"]].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

/// Returns a project with a recorded run of [`PROGRAM`], whose files are others by now; and the id of the run.
fn recorded() -> (Project, String) {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("a.txt", "old");
    let (ran, code) = project.exec(PROGRAM);
    assert_eq!(code, 0, "{ran:#}");
    project.write("a.txt", "new");
    std::fs::remove_file(project.path("out.txt")).unwrap();
    let run = shown(&project, &["runs", "show", "last"]);
    (project, run["run_id"].as_str().unwrap().to_owned())
}

/// Returns how each call of a run ended, with its tool.
fn statuses(run: &Value) -> Vec<(&str, &str)> {
    let calls = run["calls"].as_array().unwrap().iter();
    calls.map(|call| (call["tool"].as_str().unwrap(), call["status"].as_str().unwrap())).collect()
}

/// Every answer is from the record, results and errors, and nothing is called. The run says so everywhere.
#[test]
fn a_mock_calls_nothing_that_the_record_answers() {
    let (project, of) = recorded();
    let (ran, code) = mocked(&project, "last", PROGRAM);
    let original = shown(&project, &["runs", "show", &of]);
    assert_eq!((code, success(&ran)), (0, &original["result"]), "{ran:#}");
    assert_eq!(original["result"][1], "old");
    assert!(!project.path("out.txt").exists());
    let warnings = ran["warnings"].to_string();
    let told = format!("4 calls were not made, but answered from the record of run {of}");
    assert!(warnings.contains(&told), "{warnings}");
    let run = shown(&project, &["runs", "show", "last"]);
    assert_eq!((&run["mode"], &run["of"]), (&json!("mock"), &json!(of)));
    let read = ("filesystem:read_text_file", "mocked");
    assert_eq!(statuses(&run), [read, read, ("filesystem:write_file", "mocked"), read]);
    assert_eq!(run["calls"][2]["mocked_from"], json!({ "run_id": of, "call": "3" }));
    assert_eq!((&run["changes"], run["calls"][1]["output"]["text"].is_null()), (&json!([]), true));
    let id = run["run_id"].as_str().unwrap();
    for command in [&["runs", "show", id][..], &["report", id], &["report", id, "--format", "html"]]
    {
        let output = text(&project.run(command).stdout);
        assert!(output.contains("mocked") && output.contains(&of), "{command:?}: {output}");
    }
    assert!(text(&project.run(&["runs", "list"]).stdout).contains("(mock of "));
    let report = project.run(&["report", id, "--format", "json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(
        (&report["run"]["mocked_steps"], &report["run"]["completed_steps"]),
        (&json!(4), &json!(0))
    );
    assert_eq!(report["summary"]["resources"]["files_read"], json!([]), "{report:#}");
    // It has no effect to undo, and is replayed from its own record.
    let undone = project.run(&["runs", "undo", id]);
    assert!(!text(&undone.stdout).contains("out.txt"), "{}", text(&undone.stdout));
    let replayed = shown(&project, &["replay", id]);
    assert_eq!((&replayed["matches"], &replayed["calls"]), (&json!(true), &json!(4)));
    assert!(project.run(&["runs", "verify"]).status.success());
    // The answers of a mock are answers, too. Those of a replay are in its run.
    let (again, code) = mocked(&project, id, PROGRAM);
    assert_eq!((code, success(&again)), (0, &original["result"]));
    let (refused, code) = mocked(&project, replayed["replay"].as_str().unwrap(), PROGRAM);
    assert_eq!((code, failure(&refused, "CONFLICT").contains("replay")), (1, true), "{refused}");
}

/// A call that the record lacks is made if a rule allows it, and refused without an answer if not.
#[test]
fn what_the_record_lacks_is_an_ordinary_call() {
    let (project, of) = recorded();
    // The third read of the same file has no answer, and neither has another file.
    project.write("c.txt", "C");
    let program = "const read = (path) => mcp.filesystem.read_text_file({ path });
return [await read('a.txt'), await read('a.txt'), await read('a.txt'), await read('c.txt')];";
    let (ran, code) = mocked(&project, &of, program);
    assert_eq!((code, success(&ran)), (0, &json!(["old", "old", "new", "C"])), "{ran:#}");
    let warnings = ran["warnings"].to_string();
    assert!(warnings.contains("call 3 of `filesystem:read_text_file` has no answer"), "{warnings}");
    let run = shown(&project, &["runs", "show", "last"]);
    let read = |status| ("filesystem:read_text_file", status);
    let [mocked_one, made] = ["mocked", "success"].map(read);
    assert_eq!(statuses(&run), [mocked_one, mocked_one, made, made]);
    let report = shown(&project, &["runs", "show", "last"]);
    assert_eq!(report["calls"][2]["decision"], "`allow` has `filesystem:*` in `.pml.json`");

    // No rule allows it, and there is nobody to ask: the message names the call, and nothing was made.
    let project = project.allow(&["filesystem:read_text_file"]);
    let write = "await mcp.filesystem.write_file({ path: 'out.txt', content: 'x' });";
    let both = format!("{PROGRAM_HEAD}{write} return 1;");
    let (asked, code) = mocked(&project, &of, &both);
    assert_eq!((code, &asked["status"]), (3, &json!("approval_required")), "{asked:#}");
    let asked = asked.to_string();
    assert!(asked.contains("filesystem:write_file") && asked.contains("has no answer"), "{asked}");
    assert!(!project.path("out.txt").exists());
}

/// Begins with a call that the record answers.
const PROGRAM_HEAD: &str = "await mcp.filesystem.read_text_file({ path: 'a.txt' }); ";

/// What the rules deny now is not told from the record either.
#[test]
fn a_record_does_not_answer_what_is_denied_now() {
    let (project, of) = recorded();
    let deny = |what: Value| {
        project.write(".pml.json", what.to_string());
        let trusted = project.run(&["trust", "--yes"]);
        assert!(trusted.status.success(), "{}", text(&trusted.stderr));
        mocked(&project, &of, &format!("{PROGRAM_HEAD} return 'got it';"))
    };
    let allow = json!(["filesystem:*"]);
    let (denied, _) =
        deny(json!({ "permissions": { "allow": allow, "deny": ["filesystem:read_text_file"] } }));
    failure(&denied, "PERMISSION_DENIED");
    let policy = |path: &str| json!({ "filesystem": { "read": { "allow": [path] } } });
    let (denied, _) = deny(json!({ "permissions": { "allow": allow }, "policy": policy("b.txt") }));
    failure(&denied, "POLICY_DENIED");
    // The allowed twin.
    let (ran, _) = deny(json!({ "permissions": { "allow": allow }, "policy": policy("*.txt") }));
    assert_eq!(success(&ran), "got it");
}

/// Nothing is erased while a mock runs, which would record what it has read.
#[test]
fn a_run_is_not_erased_while_a_mock_of_it_runs() {
    let (project, of) = recorded();
    let program = format!(
        "{PROGRAM_HEAD}await mcp.filesystem.write_file({{ path: 'on', content: '' }});
while (!(await mcp.filesystem.list_directory({{ path: '.' }})).includes('[FILE] end')) {{
  await new Promise((done) => setTimeout(done, 50));
}}"
    );
    project.write("long.ts", program);
    let mut running = project.command(&["exec", "long.ts", "--mock", &of]);
    running.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = running.spawn().unwrap();
    poll("the mock to run", PATIENCE, || project.path("on").exists().then_some(()));
    let refused = project.run(&["runs", "erase", &of]);
    let said = text(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("is still running; wait for its end"),
        "{said}"
    );
    assert_eq!(shown(&project, &["runs", "show", &of])["erasures"], json!([]));
    project.write("end", "");
    assert!(running.wait().unwrap().success());
    assert!(project.run(&["runs", "erase", &of]).status.success());
    let mock = shown(&project, &["runs", "show", "last"]);
    assert_eq!(mock["erasures"].as_array().map(Vec::len), Some(1), "{mock:#}");
}

/// What was erased answers nothing, and a mock is erased with its run.
#[test]
fn a_mock_is_erased_with_its_run() {
    let (project, of) = recorded();
    let (ran, _) = mocked(&project, &of, PROGRAM);
    success(&ran);
    let mock = shown(&project, &["runs", "show", "last"])["run_id"].as_str().unwrap().to_owned();
    // Also one whose answers are from the mock.
    mocked(&project, &mock, PROGRAM);
    let second = shown(&project, &["runs", "show", "last"]);
    assert!(project.run(&["runs", "erase", &of]).status.success());
    for id in [&mock, second["run_id"].as_str().unwrap()] {
        let run = shown(&project, &["runs", "show", id]);
        assert_eq!(run["erasures"].as_array().map(Vec::len), Some(1), "{run:#}");
    }
    let (refused, code) = mocked(&project, &of, PROGRAM);
    assert_eq!((code, failure(&refused, "CONFLICT").contains("erased")), (1, true), "{refused}");
    assert!(project.run(&["runs", "verify"]).status.success());
}
