//! `pml runs resume`: a run whose `pml` was killed goes on, and no call is made twice.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::registry::capabilities::{author, published};
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, question, success};
use crate::support::terminal::say_yes;
use crate::support::{PATIENCE, poll, scaled};

/// The number of effects of [`PROGRAM`], each in a file of its own.
const FILES: usize = 50;

/// Adds a line to each file, ten at a time. The lines have the time and random numbers; a timer races with a call.
const PROGRAM: &str = r#"
    const stamp = () => `${Date.now()} ${crypto.randomUUID()} ${Math.random()}`;
    const add = async (i) => {
        const edits = [{ oldText: "END", newText: `${stamp()}\nEND` }];
        try {
            await mcp.filesystem.edit_file({ path: `${i}.txt`, edits });
        } catch (error) {
            if (error.code !== "CALL_INDETERMINATE") throw error;
        }
        return i;
    };
    const done = [];
    for (let round = 0; round < 5; round++) {
        const pause = new Promise((next) => setTimeout(next, Math.random() * 4));
        done.push(...await Promise.all(Array.from({ length: 10 }, (_, i) => add(round * 10 + i))));
        await Promise.race([pause, mcp.filesystem.read_text_file({ path: "0.txt" })]);
    }
    return done;
"#;

/// Runs `pml runs resume` for the last run; returns its answer and exit code.
fn resume(project: &Project, options: &[&str]) -> (Value, i32) {
    let output = project.run(&[&["runs", "resume", "last", "--json"], options].concat());
    let (shown, code) = (text(&output.stdout), output.status.code().expect("it ends by itself"));
    let shown = serde_json::from_str(&shown)
        .unwrap_or_else(|error| panic!("{error}: {shown}{}", text(&output.stderr)));
    (shown, code)
}

/// Starts a program, and kills `pml` once a file has changed.
fn kill_when(project: &Project, arguments: &[&str], has_changed: impl Fn() -> bool) {
    let mut pml = project.command(arguments);
    pml.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut pml = pml.spawn().expect("it starts");
    // It may end before it is killed.
    poll("a change or the end", PATIENCE, || {
        (has_changed() || pml.try_wait().expect("it is a child").is_some()).then_some(())
    });
    let _ = pml.kill();
    pml.wait().expect("it was killed");
}

/// Returns the options for the calls that may have taken effect: each is made again unless it has.
fn options(project: &Project, answer: &Value) -> Vec<String> {
    let message = answer["message"].as_str().unwrap();
    let mut options = Vec::new();
    for line in message.lines().filter_map(|line| line.strip_prefix("call ")) {
        let mut words = line.splitn(3, ' ');
        let (call, _, arguments) = (words.next().unwrap(), words.next(), words.next().unwrap());
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        // A call without a path changes nothing.
        let has_changed =
            arguments["path"].as_str().is_some_and(|path| project.read(path) != "END");
        let option = if has_changed { "--fail" } else { "--repeat" };
        options.extend([option.to_owned(), call.to_owned()]);
    }
    options
}

/// RP-07, R-09, P7: after `kill -9` at any instant, and again while it is resumed, a run ends as if nothing had
/// happened: each effect is there once, and a call that may have taken effect is named.
#[test]
fn calls_happen_once_whenever_pml_is_killed() {
    let (mut named, mut resumed, rounds) = (0, 0, scaled(200).max(10));
    for round in 0..rounds {
        let project = Project::offline().allow(&["filesystem:*"]);
        for file in 0..FILES {
            project.write(&format!("{file}.txt"), "END");
        }
        project.write("program.ts", PROGRAM);
        let changed = |file: usize| project.read(&format!("{file}.txt")) != "END";
        kill_when(&project, &["exec", "program.ts"], || changed((round * 7) % 41));
        // Killed again while it is resumed, and then resumed to its end.
        for again in [Some((round * 7) % 41 + 9), None] {
            let (answer, code) = resume(&project, &["--fail", "none"]);
            assert_eq!(
                code,
                if answer["message"] == "the run cannot be resumed: it has ended" { 1 } else { 2 },
                "{answer}"
            );
            if code == 1 {
                break;
            }
            let (answer, _) = match again {
                None => resume(&project, &[]),
                Some(file) => {
                    let arguments = ["runs", "resume", "last", "--json"];
                    kill_when(&project, &arguments, || changed(file));
                    continue;
                }
            };
            resumed += 1;
            let answer = if answer["error_code"] == "CALL_INDETERMINATE" {
                named += 1;
                let options = options(&project, &answer);
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                resume(&project, &options).0
            } else {
                answer
            };
            assert_eq!(success(&answer), &json!((0..FILES).collect::<Vec<_>>()));
        }
        for file in 0..FILES {
            let content = project.read(&format!("{file}.txt"));
            assert_eq!(content.lines().count(), 2, "{file}: {content}");
        }
        let output = project.run(&["runs", "verify"]);
        assert!(output.status.success(), "{}", text(&output.stdout));
        let (again, code) = resume(&project, &[]);
        assert_eq!(
            (failure(&again, "CONFLICT"), code),
            ("the run cannot be resumed: it has ended", 1)
        );
    }
    assert!(
        resumed * 2 > rounds,
        "{resumed} of {rounds} runs were resumed, {named} with a question"
    );
}

/// A run that was killed while it waited for an answer asks again; what was done before is not done again.
#[test]
fn a_question_is_asked_again() {
    let project = Project::offline().allow(&["filesystem:edit_file"]);
    project.write("a.txt", "END");
    let mut pml = project.stdio();
    let asked = pml.execute(
        "await mcp.filesystem.edit_file({ path: 'a.txt', edits: [{ oldText: 'END', newText: 'x\\nEND' }] });
         await mcp.filesystem.create_directory({ path: 'new' }); return args.n ?? 'done'",
    );
    question(&asked);
    // It is still there.
    let (running, code) = resume(&project, &[]);
    assert_eq!(
        (failure(&running, "CONFLICT"), code),
        ("the run cannot be resumed: it is still running", 1)
    );
    let undo = text(&project.run(&["runs", "undo", "last"]).stderr);
    assert!(undo.contains("the run cannot be undone: it is still running"), "{undo}");
    let shown = |shown: &str| text(&project.run(&["runs", "show"]).stdout).contains(shown);
    assert!(shown("status    running\n") && shown("not yet: it is still running"));
    pml.pid().signal("KILL");
    drop(pml);
    assert!(shown("status    stopped\n") && shown("`pml runs resume` goes on"));
    let list = text(&project.run(&["runs", "list"]).stdout);
    assert!(list.contains("  stopped  "), "{list}");
    let (asked, code) = resume(&project, &[]);
    assert_eq!((asked["status"].as_str(), code), (Some("approval_required"), 3), "{asked}");
    assert_eq!((project.read("a.txt").as_str(), project.path("new").exists()), ("x\nEND", false));
}

/// A list of calls that was allowed before `pml` was killed still covers what it showed, once, and nothing else. Calls that
/// were left out stay out.
#[test]
fn an_answer_about_a_program_outlives_pml() {
    let program = "
        const made = [];
        const note = (call) => call.then(() => made.push('made'), (error) => made.push(error.code));
        await note(mcp.filesystem.write_file({ path: 'a.txt', content: 'a' }));
        await new Promise((next) => setTimeout(next, 500));
        await note(mcp.filesystem.write_file({ path: 'b.txt', content: 'b' }));
        await note(mcp.filesystem.write_file({ path: 'c.txt', content: 'c' }));
        if (made.length > 2) await mcp.filesystem.create_directory({ path: 'ab'.slice(args.from ?? 0) });
        return made";
    // What happens between the kill and the resumption, and what the resumed run then does.
    for (between, asks) in [("nothing", false), ("content", true), ("link", true)] {
        let project = Project::offline();
        project.write("b.txt", "before");
        project.write("c.txt", "before");
        project.write("elsewhere.txt", "kept");
        let mut pml = project.stdio();
        let asked = pml.execute(program);
        assert_eq!(question(&asked)["context"]["calls"].as_array().unwrap().len(), 3, "{asked:#}");
        let id = asked["workflow_id"].as_str().unwrap();
        let allow = json!({ "workflow_id": id, "approved": true, "without": [3] });
        pml.send("tools/call", json!({ "name": "pml_continue", "arguments": allow }));
        poll("the first call", PATIENCE, || project.path("a.txt").exists().then_some(()));
        pml.pid().signal("KILL");
        drop(pml);
        match between {
            "content" => project.write("b.txt", "somebody else's"),
            "link" => {
                std::fs::remove_file(project.path("b.txt")).unwrap();
                std::os::unix::fs::symlink("elsewhere.txt", project.path("b.txt")).unwrap();
            }
            _ => {}
        }
        let arguments: &[&str] = match project.path("a.txt").exists() {
            // Killed before the end of the call was recorded, perhaps.
            true if resume(&project, &["--fail", "none"]).0["hint"]
                .as_str()
                .is_some_and(|hint| hint.contains("call 1 ")) =>
            {
                &["--fail", "1"]
            }
            _ => &[],
        };
        let (answer, code) = resume(&project, arguments);
        assert_eq!((answer["status"].as_str(), code), (Some("approval_required"), 3), "{answer}");
        let tool = &answer["context"]["tool"];
        let content = std::fs::read_to_string(project.path("b.txt")).unwrap();
        match asks {
            true => assert_eq!((tool, content == "b"), (&json!("filesystem:write_file"), false)),
            // The last call was in no list.
            false => {
                assert_eq!((tool, content == "b"), (&json!("filesystem:create_directory"), true))
            }
        }
        assert_eq!((&*project.read("c.txt"), &*project.read("elsewhere.txt")), ("before", "kept"));
    }
}

/// What is not this user's record, or not a stopped run, is not resumed.
#[test]
fn only_stopped_runs_of_this_user_are_resumed() {
    let project = Project::offline().allow(&["filesystem:*"]);
    let (none, code) = resume(&project, &[]);
    assert_eq!((none["message"].as_str(), code), (Some("no run is recorded in this project"), 2));
    project.write("a.txt", "a");
    project.write("b.txt", "b");
    project.write(
        "program.ts",
        "
        await mcp.filesystem.write_file({ path: 'a.txt', content: 'changed' });
        await new Promise(() => setTimeout(() => {}, 60_000));",
    );
    kill_when(&project, &["exec", "program.ts"], || project.read("a.txt") == "changed");
    for options in [["--fail", "7"], ["--repeat", "x\u{1b}[2J"]] {
        let (refused, code) = resume(&project, &options);
        let message = refused["message"].as_str().unwrap();
        assert!(
            message.contains("is not one that may have taken effect") && code == 2,
            "{refused}"
        );
        assert!(!message.contains('\u{1b}'));
    }
    // A forged answer would choose what the program gets.
    let script = "import sqlite3; d = sqlite3.connect('.pml/runs.db'); d.executescript(\"drop trigger records_are_not_changed; update records set body = replace(body, 'a.txt', 'b.txt')\"); d.commit()";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script]).current_dir(project.workspace());
    assert!(command.status().expect("the tests need Python").success());
    let (refused, code) = resume(&project, &[]);
    assert!(
        matches!(refused["error_code"].as_str(), Some("CONFLICT" | "RUN_STORE_UNAVAILABLE")),
        "{refused}"
    );
    assert_ne!(code, 0);
    assert_eq!(project.read("b.txt"), "b");
    // Without the lock, nobody knows whether the run is alive.
    let other = Project::offline().allow(&["filesystem:*"]);
    other.write("a.txt", "a");
    other.write("program.ts", project.read("program.ts"));
    kill_when(&other, &["exec", "program.ts"], || other.read("a.txt") == "changed");
    std::fs::remove_dir_all(other.home().join(".local/state/pml/running")).unwrap();
    let (refused, code) = resume(&other, &[]);
    let message = failure(&refused, "CONFLICT");
    assert!(message.contains("whether it is still running is not known") && code == 1, "{refused}");
}

/// A program is run with the arguments and the text that it had; its file may have changed.
#[test]
fn a_run_goes_on_with_its_own_program() {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("a.txt", "a");
    project.write(
        "program.ts",
        "
        await mcp.filesystem.write_file({ path: 'a.txt', content: args.text });
        await new Promise((next) => setTimeout(next, 3_000));
        await mcp.filesystem.write_file({ path: 'b.txt', content: args.text });
        return await mcp.filesystem.read_text_file({ path: 'b.txt' })",
    );
    let arguments = ["exec", "program.ts", "--args", r#"{"text":"first"}"#];
    // The file is written before the end of the call is recorded.
    let is_recorded = || text(&project.run(&["runs", "show"]).stdout).contains("client: success");
    kill_when(&project, &arguments, is_recorded);
    project.write("program.ts", "return 'another'");
    project.write("a.txt", "edited since");
    let (answer, code) = resume(&project, &[]);
    assert_eq!((success(&answer), code), (&json!("first"), 0));
    assert_eq!(project.read("a.txt"), "edited since");
    let shown = text(&project.run(&["runs", "show"]).stdout);
    assert!(shown.contains("status    completed") && shown.contains("\nresumed   "), "{shown}");
}

/// A native tool that runs a command may have taken effect, although it records no change of a file. One that reads
/// has not.
#[test]
fn a_commit_is_not_made_twice_unasked() {
    let policy = json!({
        "filesystem": { "read": { "allow": ["**"] } },
        "shell": { "allow": ["git", "sh"] },
    });
    let config = json!({ "permissions": { "allow": ["*"] }, "policy": policy });
    let project = Project::offline().configure(&config);
    let init = std::process::Command::new("git")
        .args(["init", "-q", "."])
        .current_dir(project.workspace())
        .status();
    assert!(init.unwrap().success(), "these tests need git");
    let hook = ".git/hooks/post-commit";
    project.write(hook, "#!/bin/sh\ntouch committed\nsleep 1000\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(project.path(hook), executable).unwrap();
    project.write("a.txt", "a");
    project.write(
        "program.ts",
        "await mcp.git.git_add({ repo_path: '.', files: ['a.txt'] });
         await mcp.shell.exec({ command: ['sh', '-c', 'git config user.name A && git config user.email a@b'] });
         await mcp.git.git_commit({ repo_path: '.', message: 'once' });
         return await mcp.git.git_log({ repo_path: '.' });",
    );
    kill_when(&project, &["exec", "program.ts"], || project.path("committed").exists());
    assert!(project.path("committed").exists());
    std::fs::remove_file(project.path(hook)).unwrap();
    let (answer, code) = resume(&project, &[]);
    assert_eq!((code, &answer["error_code"]), (1, &json!("CALL_INDETERMINATE")), "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("call 3 git:git_commit "), "{answer}");
    let (answer, _) = resume(&project, &["--fail", "3"]);
    assert_eq!(answer["error_code"], "CALL_INDETERMINATE", "{answer}");
    let log = std::process::Command::new("git")
        .args(["log", "--format=%s"])
        .current_dir(project.workspace())
        .output();
    assert_eq!(text(&log.unwrap().stdout), "once\n");
    // What a command changed is not known, so it is not put back.
    let undo = project.run(&["runs", "undo", "last", "--json"]);
    let undo: Value = serde_json::from_slice(&undo.stdout).unwrap();
    let calls = |tool: &str| json!({ "tool": tool, "calls": 1 });
    let expected = [calls("git:git_add"), calls("shell:exec"), calls("git:git_commit")];
    assert_eq!(undo["not_covered"], json!(expected), "{undo}");
}

/// A call that was made twice is undone as one; what was undone is not resumed.
#[test]
fn a_repeated_call_is_undone() {
    let mut tries = 0;
    loop {
        tries += 1;
        assert!(tries < 100, "each time, the end of the call was recorded before `pml` was killed");
        let project = Project::offline().allow(&["filesystem:*"]);
        project.write("a.txt", "before");
        project.write(
            "program.ts",
            "
            await mcp.filesystem.write_file({ path: 'a.txt', content: `${Math.random()}` });
            await mcp.filesystem.write_file({ path: 'a.txt', content: 'after' });
            return await new Promise(() => setTimeout(() => {}, 60_000))",
        );
        kill_when(&project, &["exec", "program.ts"], || project.read("a.txt") != "before");
        let (answer, _) = resume(&project, &["--fail", "none"]);
        if !answer["hint"].as_str().unwrap().contains("call 1 ") {
            continue;
        }
        let written = project.read("a.txt");
        let arguments = ["runs", "resume", "last", "--repeat", "1"];
        kill_when(&project, &arguments, || project.read("a.txt") == "after");
        assert_ne!(written, "after");
        let undo = project.run(&["runs", "undo", "last"]);
        assert!(undo.status.success(), "{}", text(&undo.stderr));
        assert_eq!(project.read("a.txt"), "before");
        let list = text(&project.run(&["runs", "list"]).stdout);
        let run = list.lines().nth(2).unwrap().split(' ').next().unwrap();
        let output = project.run(&["runs", "resume", run]);
        assert_eq!(output.status.code(), Some(1));
        let message = text(&output.stderr);
        assert!(message.contains("`pml runs undo` has put back what it changed"), "{message}");
        break;
    }
}

/// The program of a capability is run again as well: what it did before is not done again.
#[test]
fn a_capability_goes_on_where_it_was() {
    const ADD: &str = "/** Adds a line to files. */
        const seen = [];
        for (const path of args.paths) {
            const edits = [{ oldText: 'END', newText: `${Date.now()} ${Math.random()}\\nEND` }];
            try {
                await mcp.filesystem.edit_file({ path, edits });
            } catch (error: any) { if (error.code !== 'CALL_INDETERMINATE') throw error; }
            seen.push(await mcp.math.eval({ expression: `${seen.length} + 1` }));
        }
        return seen";
    const PROGRAM: &str = "
        const paths = (n: string) => Array.from({ length: 8 }, (_, i) => `${n}${i}.txt`);
        return await Promise.all(['a', 'b'].map((n) => mcp.files.add({ paths: paths(n) })))";
    let author = author();
    published(&author, "files.add", ADD);
    let files: Vec<String> =
        ["a", "b"].iter().flat_map(|n| (0..8).map(move |i| format!("{n}{i}.txt"))).collect();
    for round in 0..scaled(40).max(6) {
        let project = Project::of(&author).allow(&["*"]);
        for file in &files {
            project.write(file, "END");
        }
        project.write("program.ts", PROGRAM);
        let mut pml = project.stdio();
        let pinned = pml.execute("return await mcp.files.add({ paths: [] })");
        question(&pinned);
        say_yes(&project, &mut pml, &pinned);
        let file = &files[round * 5 % files.len()];
        kill_when(&project, &["exec", "program.ts"], || project.read(file) != "END");
        let (mut answer, code) = resume(&project, &[]);
        if answer["error_code"] == "CALL_INDETERMINATE" {
            let options = options(&project, &answer);
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            answer = resume(&project, &options).0;
        } else if code == 1 {
            assert_eq!(failure(&answer, "CONFLICT"), "the run cannot be resumed: it has ended");
            continue;
        }
        let counted = json!([1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(success(&answer), &json!([counted, counted]));
        for file in &files {
            let content = project.read(file);
            assert_eq!(content.lines().count(), 2, "{file}: {content}");
        }
    }
}
