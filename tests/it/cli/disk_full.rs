//! A full disk: nothing happens that cannot be recorded, nothing is damaged, and everything works again once there is
//! space.

use std::process::Command;

use serde_json::{Value, json};

use super::changed_tools;
use super::traces::{asked, executions};
use crate::skipped::skipped;
use crate::support::cli::{Project, finish, text};
use crate::support::expect::{failure, success};
use crate::support::server::Server;

/// Writes many small files; each call is recorded.
const PROGRAM: &str = "
    for (let i = 0; i < 400; i++) await mcp.filesystem.write_file({ path: `files/${i}.txt`, content: `${i} `.repeat(200) });
    return 'done'";

/// Runs a script of the shell in a mount namespace of its own, so that its file systems end with it. `None` if this
/// machine does not allow that.
fn in_namespace(project: &Project, script: &str) -> Option<(String, bool)> {
    let may = |arguments: &[&str]| {
        let mut test = Command::new("unshare");
        let output = test.args(arguments).args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let unshare = [&["--mount"][..], &["--map-root-user", "--mount"]];
    let unshare = unshare.into_iter().find(|arguments| may(arguments))?;
    let pml = crate::support::binaries::built("pml").display().to_string();
    let arguments = [unshare, &["bash", "-ec", script, "bash", &pml]].concat();
    let output = finish(project.wrap(Command::new("unshare"), &arguments), b"");
    let printed = text(&output.stdout) + &text(&output.stderr);
    Some((printed, output.status.success()))
}

/// R-11, P6, P7: the run store, or the user's own records, have no space any more. Effects without a record do not happen.
#[test]
fn what_cannot_be_recorded_does_not_happen() {
    // The store has no space; the user's records have none for another file; both.
    for full in [".pml", "$HOME/.local/state", ".pml $HOME/.local/state"] {
        let project = Project::offline().allow(&["filesystem:*"]);
        project.write("program.ts", PROGRAM);
        std::fs::create_dir(project.path("files")).unwrap();
        // The rules and the first run are there before the disk is full; what trusts them is in the state folder.
        let (first, _) = project.exec("return 1");
        success(&first);
        let first = first["execution_id"].as_str().unwrap();
        let script = format!(
            r#"
            for folder in {full}; do
                cp -a "$folder" "$HOME/kept"
                mount -t tmpfs -o size=1500k,nr_inodes=100 none "$folder"
                cp -a "$HOME/kept/." "$folder"
                rm -rf "$HOME/kept"
                mkdir "$folder/filler"
                if [ "$folder" = .pml ]; then
                    dd if=/dev/zero of="$folder/filler/0" bs=1k count=700 status=none
                else
                    i=0
                    while (: > "$folder/filler/$i") 2> /dev/null; do i=$((i + 1)); done
                fi
            done
            code=0
            "$1" exec program.ts --json > "$HOME/answer" 2> "$HOME/log" || code=$?
            echo "$code"
            "$1" replay {first} --json > "$HOME/replayed"
            for folder in {full}; do rm -r "$folder/filler"; done
            "$1" runs verify > "$HOME/verified" || echo "not in order"
            "$1" runs show --json > "$HOME/run"
            # There is space again.
            echo "return await mcp.filesystem.write_file({{ path: 'after.txt', content: 'x' }})" | "$1" exec - > /dev/null
            "$1" runs verify >> "$HOME/verified" || echo "not in order"
            "#
        );
        let Some((printed, succeeded)) = in_namespace(&project, &script) else {
            skipped!("needs a mount namespace");
        };
        let home =
            |name: &str| std::fs::read_to_string(project.home().join(name)).unwrap_or_default();
        let context =
            format!("{full}: {printed}\n{}{}{}", home("log"), home("answer"), home("verified"));
        assert!(succeeded, "{context}");
        assert!(!printed.contains("not in order"), "{context}");
        let answer: Value = serde_json::from_str(&home("answer")).expect(&context);
        assert_eq!(answer["error_code"], "RUN_STORE_UNAVAILABLE", "{context}");
        assert_eq!(printed.lines().next(), Some("4"), "{context}");
        // A replay has no effect, so it needs no record. It says whether it has one.
        let replayed: Value = serde_json::from_str(&home("replayed")).expect(&context);
        assert_eq!(replayed["matches"], true, "{replayed:#}: {context}");
        assert_ne!(replayed["replay"].is_null(), replayed["not_recorded"].is_null(), "{context}");
        // Each effect has a record, and most calls were not made.
        let files = std::fs::read_dir(project.path("files")).unwrap().count();
        let run: Value = serde_json::from_str(&home("run")).expect(&context);
        let calls = run["calls"].as_array().unwrap().len();
        let is_of_program = run["code"].as_str().is_some_and(|code| code == PROGRAM);
        assert!(files <= if is_of_program { calls } else { 0 }, "{files} of {calls}: {context}");
        assert!(files < 400, "{context}");
        if full == ".pml" {
            assert!(files > 5, "{files}: {context}");
        }
        assert!(project.path("after.txt").exists(), "{context}");
        let folder = project.path("files");
        for file in std::fs::read_dir(&folder).unwrap().flatten() {
            // No file is half written.
            let number = file.file_name().into_string().unwrap().replace(".txt", "");
            let content = std::fs::read_to_string(file.path()).unwrap();
            assert_eq!(json!(content), json!(format!("{number} ").repeat(200)));
        }
    }
}

/// R-11, P6: the tools of a server that cannot be noted in the lock are not called, whichever place has no space; with
/// space, the same command succeeds.
#[test]
fn what_cannot_be_pinned_is_not_called() {
    let project = changed_tools::project();
    project.write("program.ts", changed_tools::ADD);
    success(&project.exec("return 1").0);
    let script = r#"
        cp -a .pml "$HOME/kept"
        mount -t tmpfs -o size=4m,nr_inodes=100 none .pml
        cp -a "$HOME/kept/." .pml
        mkdir .pml/filler "$HOME/tmp"
        i=0
        while (: > ".pml/filler/$i") 2> /dev/null; do i=$((i + 1)); done
        for free in 0 1 2 3 4 5; do
            code=0
            "$1" exec program.ts --json > "$HOME/answer-$free" 2> "$HOME/log-$free" || code=$?
            echo "$code $(ls -A .pml | tr '\n' ' ') called: $(cat calls.txt 2> /dev/null)"
            rm ".pml/filler/$free"
        done
        rm -r .pml/filler
        # The folder for temporary files has no space.
        mount -t tmpfs -o size=64k,nr_inodes=2 none "$HOME/tmp"
        (: > "$HOME/tmp/filler") 2> /dev/null || true
        TMPDIR="$HOME/tmp" "$1" exec program.ts --json > "$HOME/answer" 2> "$HOME/log" || true
        "$1" runs verify
        "$1" exec program.ts > /dev/null
    "#;
    let Some((printed, succeeded)) = in_namespace(&project, script) else {
        skipped!("needs a mount namespace");
    };
    let home = |name: &str| std::fs::read_to_string(project.home().join(name)).unwrap_or_default();
    let context = format!("{printed}\n{}{}{}", home("answer-0"), home("answer"), home("log"));
    assert!(succeeded, "{context}");
    let answer = |name: &str| serde_json::from_str::<Value>(&home(name)).expect(&context);
    let message = |name: &str| answer(name)["message"].as_str().unwrap_or_default().to_owned();
    let lines: Vec<&str> = printed.lines().collect();
    assert!(!lines[0].starts_with('0') && lines[5].starts_with("0 "), "{context}");
    let mut calls = String::new();
    for (free, line) in lines[..6].iter().enumerate() {
        let name = format!("answer-{free}");
        if line.starts_with("0 ") {
            success(&answer(&name));
            calls += "add ";
        } else {
            // The store needs files beside itself while it is open, and the lock is written beside itself.
            let said = message(&name);
            assert!(said.contains("mcp.lock") || said.contains("runs.db"), "{context}");
            let hint = answer(&name)["hint"].as_str().unwrap_or_default().to_owned();
            assert!(
                !said.contains("mcp.lock") || hint.contains("nothing runs that cannot be recorded"),
                "{hint}"
            );
        }
        // No call without its record, and nothing is left of a write that failed.
        let (files, called) = line.split_once(" called: ").expect(&context);
        assert_eq!(called.trim(), calls.trim(), "{context}");
        let known = [".gitignore", "filler", "mcp.lock", "runs.db", "runs.db-shm", "runs.db-wal"];
        assert!(files.split_whitespace().skip(1).all(|name| known.contains(&name)), "{files}");
    }
    failure(&answer("answer"), "TOOL_UNAVAILABLE");
    assert!(message("answer").contains("temporary folder"), "{context}");
    assert_eq!(project.read("calls.txt"), format!("{calls}add "), "{context}");
}

/// R-11, R-23: the file that says which traces were acknowledged cannot be written. Runs go on; their traces are sent again
/// and stored once; with space, nothing is left to send.
#[test]
fn traces_are_stored_once_although_it_cannot_be_noted_that_they_were_sent() {
    let tenant = Server::shared().tenant();
    let project = Project::of(&tenant).allow(&["filesystem:*"]);
    project.write("a.txt", "abc");
    project.write("program.ts", "return await mcp.filesystem.read_text_file({ path: 'a.txt' })");
    let script = r#"
        "$1" exec program.ts --json > "$HOME/answer-0"
        traces="$HOME/.local/state/pml/traces"
        mount -t tmpfs -o size=64k,nr_inodes=2 none "$traces"
        (: > "$traces/filler") 2> /dev/null || true
        "$1" exec program.ts --json > "$HOME/answer-1"
        "$1" exec program.ts --json > "$HOME/answer-2"
        "$1" doctor | grep traces || true
        umount "$traces"
        "$1" exec program.ts --json > "$HOME/answer-3"
        "$1" doctor | grep traces || true
    "#;
    let Some((printed, succeeded)) = in_namespace(&project, script) else {
        skipped!("needs a mount namespace");
    };
    assert!(succeeded, "{printed}");
    assert_eq!(printed.matches("still to be sent").count(), 1, "{printed}");
    for number in 0..4 {
        let answer =
            std::fs::read_to_string(project.home().join(format!("answer-{number}"))).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(success(&answer), "abc");
        let run = answer["execution_id"].as_str().unwrap();
        let trace = asked(&tenant, &format!("traces/{run}")).expect("it was sent");
        assert_eq!(trace["events"].as_array().unwrap().len(), 1, "{trace:#}");
    }
    assert_eq!(executions(&tenant).len(), 4, "{:#?}", executions(&tenant));
}
