//! `pml runs erase` and `pml cleanup --runs`: the values of a run leave every file, and its record stays verifiable.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::{question, success};
use crate::support::{PATIENCE, poll, scaled};

/// Runs `pml`; it must succeed.
#[track_caller]
fn done(project: &Project, arguments: &[&str]) -> String {
    let output = project.run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs `pml`; it must end with this exit code. Returns what it says.
#[track_caller]
fn refused(project: &Project, arguments: &[&str], code: i32) -> String {
    let output = project.run(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

#[track_caller]
fn shown(project: &Project, arguments: &[&str]) -> Value {
    serde_json::from_str(&done(project, &[arguments, &["--json"]].concat())).unwrap()
}

/// Counts the files beneath a folder that contain a text.
fn sweep(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sweep(&path, text));
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            if bytes.windows(text.len()).any(|part| part == text.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

/// A program whose every value contains the canary: its text, its arguments, results, errors, a replaced file, a path.
const PROGRAM: &str = "const secret = 'canary-71c9';
await mcp.filesystem.write_file({ path: `${secret}.txt`, content: secret.repeat(4000) });
const text = await mcp.filesystem.read_text_file({ path: `${secret}.txt` });
await mcp.filesystem.write_file({ path: `${secret}.txt`, content: 'short' });
await mcp.filesystem.read_text_file({ path: `missing-${secret}` }).catch((error) => error.message);
return { secret, text };";

/// The values are in no file of the project and of the user's records any more. What the run did is still known, and every
/// command says that its values are gone.
#[test]
fn an_erased_run_leaves_nothing_behind() {
    let project = Project::offline().allow(&["filesystem:*"]);
    let (kept, _) = project.exec("return await mcp.filesystem.list_directory({ path: '.' })");
    success(&kept);
    // An agent's session has the store open all the time.
    let mut pml = project.stdio();
    success(&pml.execute("return 'from the session'"));
    let (ran, code) = project.exec(PROGRAM);
    assert_eq!(code, 0, "{ran:#}");
    std::fs::remove_file(project.path("canary-71c9.txt")).unwrap();
    let canary = || {
        [sweep(&project.workspace(), "canary-71c9"), sweep(&project.home(), "canary-71c9")].concat()
    };
    assert!(canary().len() >= 4, "{:?}", canary());
    let verified = shown(&project, &["runs", "verify"])["records"].as_i64().unwrap();

    let erased = shown(&project, &["runs", "erase", "last"]);
    assert!(erased["records"].as_u64() > Some(8) && erased["deleted_files"] == 4, "{erased}");
    assert_eq!(canary(), Vec::<String>::new());
    assert!(project.path(".pml/contents").read_dir().unwrap().next().is_none());
    let report = shown(&project, &["runs", "verify"]);
    assert_eq!((&report["ok"], report["records"].as_i64()), (&json!(true), Some(verified + 1)));
    assert_eq!(report["erasures"][0]["run_id"], erased["run_id"], "{report:#}");
    let run = shown(&project, &["runs", "show"]);
    assert_eq!(run["status"], "completed");
    let tools: Vec<_> = run["calls"].as_array().unwrap().iter().map(|call| &call["tool"]).collect();
    assert_eq!(tools.len(), 4);
    assert!(run["code"]["erased"].as_str().unwrap().starts_with("sha256-"), "{run:#}");
    assert_eq!(run["calls"][3]["error"]["message"], "erased");
    let said = done(&project, &["runs", "show"]);
    assert!(said.contains("\nerased    20") && said.contains(", all values, in "), "{said}");
    assert!(done(&project, &["runs", "verify"]).contains("Erased in run "));

    let said = refused(&project, &["replay", "last"], 1);
    assert!(said.contains("the program was erased"), "{said}");
    let said = refused(&project, &["runs", "undo", "last"], 1);
    assert!(said.contains("its values were erased"), "{said}");
    let output = project.run(&["runs", "export", "last", "--output", "run.json"]);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("because they were erased: 20"), "{said}");
    let said = done(&project, &["verify", "run.json"]);
    assert!(said.contains("erased    20") && said.contains("all values"), "{said}");
    let said = done(&project, &["runs", "erase", "last"]);
    assert_eq!(said, "Its values had been erased before.\n");
    // The other runs and the session go on.
    success(&pml.execute("return 'still there'"));
    let runs = shown(&project, &["runs", "list"]);
    assert_eq!(runs["runs"].as_array().unwrap().len(), 4);
    let first = runs["runs"][3]["run_id"].as_str().unwrap();
    let replayed = shown(&project, &["replay", first]);
    assert_eq!(replayed["matches"], true, "{replayed:#}");
    assert_eq!(shown(&project, &["runs", "verify"])["ok"], true);
}

/// A replay has the values of its run, so they are erased together.
#[test]
fn replays_are_erased_with_their_run() {
    let project = Project::offline().allow(&["filesystem:*"]);
    let (ran, code) = project.exec(PROGRAM);
    assert_eq!(code, 0, "{ran:#}");
    let replayed = shown(&project, &["replay", "last"]);
    let other = PROGRAM.replace("'short'", "`other ${secret}`");
    project.write("other.ts", other);
    let left = project.run(&["replay", "last", "--program", "other.ts", "--json"]);
    assert_eq!(left.status.code(), Some(1), "{}", text(&left.stdout));
    for name in ["canary-71c9.txt", "other.ts"] {
        std::fs::remove_file(project.path(name)).unwrap();
    }
    done(&project, &["runs", "erase", "last"]);
    let found = [sweep(&project.workspace(), "canary-71c9"), sweep(&project.home(), "canary-71c9")]
        .concat();
    assert_eq!(found, Vec::<String>::new());
    // It is still known that the run was replayed, and how that ended.
    let replay = shown(&project, &["runs", "show", replayed["replay"].as_str().unwrap()]);
    assert_eq!((&replay["of"], &replay["replay"]["matches"]), (&ran["execution_id"], &json!(true)));
    assert!(replay["result"]["erased"].is_string(), "{replay:#}");
    assert_eq!(shown(&project, &["runs", "verify"])["ok"], true);
}

/// One call is erased, and the others stay.
#[test]
fn one_call_is_erased() {
    let project = Project::offline().allow(&["filesystem:*"]);
    let (ran, _) = project.exec(
        "await mcp.filesystem.write_file({ path: 'a.txt', content: args.x ?? 'one' });
         await mcp.filesystem.write_file({ path: 'b.txt', content: 'two' });
         return 'done'",
    );
    success(&ran);
    let said = refused(&project, &["runs", "erase", "last", "--call", "7"], 2);
    assert!(said.contains("the run has no call 7"), "{said}");
    done(&project, &["runs", "erase", "last", "--call", "2"]);
    let run = shown(&project, &["runs", "show"]);
    assert_eq!(run["calls"][0]["arguments"], json!({ "path": "a.txt", "content": "one" }));
    assert!(run["calls"][1]["arguments"]["erased"].is_string(), "{run:#}");
    assert_eq!(run["result"], "done");
    let said = refused(&project, &["replay", "last"], 1);
    assert!(said.contains("the answer to call 2 was erased"), "{said}");
    assert!(done(&project, &["runs", "show"]).contains(", the values of call 2, in "));
    assert_eq!(shown(&project, &["runs", "verify"])["ok"], true);
}

/// A run that goes on, or could, is not erased.
#[test]
fn a_run_that_can_go_on_is_not_erased() {
    let project = Project::offline().allow(&["filesystem:*"]);
    let mut pml = project.stdio();
    let asked = pml.execute("return await mcp.shell.exec({ command: ['true'] })");
    question(&asked);
    for options in [&["runs", "erase", "last"][..], &["runs", "erase", "last", "--give-up"]] {
        let said = refused(&project, options, 1);
        assert!(said.contains("the run is still running"), "{said}");
    }
    pml.resume(&asked, false, false);
    drop(pml);
    done(&project, &["runs", "erase", "last"]);

    project.write("p.ts", "await mcp.filesystem.write_file({ path: 'b.txt', content: 'canary' }); await new Promise(() => setTimeout(() => {}, 60_000));");
    let mut stopped = project.command(&["exec", "p.ts"]);
    stopped.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut stopped = stopped.spawn().unwrap();
    poll("the write", PATIENCE, || project.path("b.txt").exists().then_some(()));
    let said = refused(&project, &["runs", "erase", "last"], 1);
    assert!(said.contains("the run is still running"), "{said}");
    stopped.kill().unwrap();
    stopped.wait().unwrap();
    let said = refused(&project, &["runs", "erase", "last"], 1);
    assert!(said.contains("was stopped, and can be resumed"), "{said}");
    let cleaned = shown(&project, &["cleanup", "--runs", "0h"]);
    assert_eq!(
        (&cleaned["runs"]["erased"], &cleaned["runs"]["unfinished"]),
        (&json!([]), &json!(1))
    );
    assert!(!sweep(&project.path(".pml"), "canary").is_empty());
    done(&project, &["runs", "erase", "last", "--give-up"]);
    assert!(sweep(&project.path(".pml"), "canary").is_empty());
    let said = refused(&project, &["runs", "resume", "last"], 1);
    assert!(said.contains("was erased"), "{said}");
    assert_eq!(shown(&project, &["runs", "verify"])["ok"], true);
}

/// Whenever an erasure is killed, the store is in order, and the next one removes what is left.
#[test]
fn a_killed_erasure_is_repeated() {
    let project = Project::offline().allow(&["filesystem:*"]);
    // Something to rebuild, so that there is something to interrupt.
    success(&project.exec("return 'x'.repeat(10_000)").0);
    for round in 0..scaled(60).max(6) {
        let canary = format!("canary-{round}-end");
        let (ran, _) = project.exec(&format!("return ['{canary}', '{canary}'.repeat(5_000)]"));
        success(&ran);
        let mut erasing = project.command(&["runs", "erase", "last"]);
        erasing.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let begun = Instant::now();
        let mut erasing = erasing.spawn().unwrap();
        // At another moment each time, up to the usual end.
        let moment = Duration::from_millis((round * 7 % 60) as u64);
        poll("the moment", PATIENCE, || (begun.elapsed() >= moment).then_some(()));
        let _ = erasing.kill();
        erasing.wait().unwrap();
        assert_eq!(shown(&project, &["runs", "verify"])["faults"], json!([]), "round {round}");
        done(&project, &["runs", "erase", "last"]);
        assert_eq!(sweep(&project.path(".pml"), &canary), Vec::<String>::new(), "round {round}");
    }
    assert_eq!(shown(&project, &["runs", "verify"])["ok"], true);
}

/// `pml cleanup` erases old runs, and the oldest ones while the store is too large.
#[test]
fn old_runs_are_cleaned_up() {
    let project = Project::offline().allow(&["filesystem:*"]);
    for name in ["one", "two", "three"] {
        let (ran, _) = project.exec(&format!("return 'canary-{name} '.repeat(20_000)"));
        success(&ran);
    }
    let ids: Vec<Value> = {
        let runs = shown(&project, &["runs", "list"]);
        runs["runs"].as_array().unwrap().iter().rev().map(|run| run["run_id"].clone()).collect()
    };
    let are_there = || {
        ["one", "two", "three"]
            .map(|name| !sweep(&project.path(".pml"), &format!("canary-{name} canary")).is_empty())
    };
    assert!(shown(&project, &["cleanup"]).get("runs").is_none());
    let cleaned = shown(&project, &["cleanup", "--runs", "1d"]);
    assert_eq!(cleaned["runs"]["erased"], json!([]), "{cleaned:#}");
    let cleaned = shown(&project, &["cleanup", "--runs-above", "100MB"]);
    assert_eq!(cleaned["runs"]["erased"], json!([]), "{cleaned:#}");
    // Each has more than 200 kB.
    let trial = shown(&project, &["cleanup", "--runs-above", "600kB", "--dry-run"]);
    assert_eq!((&trial["runs"]["erased"], are_there()), (&json!([ids[0]]), [true; 3]), "{trial:#}");
    let cleaned = shown(&project, &["cleanup", "--runs-above", "600kB"]);
    assert_eq!((&cleaned["runs"]["erased"], are_there()), (&json!([ids[0]]), [false, true, true]));
    assert!(cleaned["runs"]["bytes_after"].as_u64() < Some(600_000), "{cleaned:#}");
    let said = done(&project, &["cleanup", "--runs", "0h", "--runs-above", "1kB"]);
    for id in &ids[1..] {
        let line = format!("Erased the values of run {}\n", id.as_str().unwrap());
        assert!(said.contains(&line), "{said}");
    }
    assert!(said.contains("The run store has "), "{said}");
    assert_eq!(are_there(), [false; 3]);
    assert!(done(&project, &["cleanup", "--runs", "0h"]).contains("No values of runs to erase"));
    assert_eq!(shown(&project, &["runs", "verify"])["ok"], true);
    for arguments in [["cleanup", "--runs", "30"], ["cleanup", "--runs-above", "5TB"]] {
        refused(&project, &arguments, 2);
    }
}
