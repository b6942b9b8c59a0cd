//! The record of runs: what it contains, when it is written, and what `pml runs verify` finds.

use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::cli::Project;
use crate::support::expect::{failure, question, success};
use crate::support::{PATIENCE, poll, scaled};

/// Runs `pml runs …` with `--json`; returns its output and exit code.
#[track_caller]
fn runs(project: &Project, arguments: &[&str]) -> (Value, i32) {
    let output = project.run(&[&["runs"], arguments, &["--json"]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let shown = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
    });
    (shown, output.status.code().expect("it ends by itself"))
}

/// Returns the latest run.
#[track_caller]
fn latest(project: &Project) -> Value {
    let (run, code) = runs(project, &["show"]);
    assert_eq!(code, 0, "{run}");
    run
}

#[track_caller]
fn assert_sound(project: &Project) {
    let (verified, code) = runs(project, &["verify"]);
    assert_eq!((&verified["ok"], code), (&json!(true), 0), "{verified}");
}

fn allowing(patterns: &[&str]) -> Project {
    Project::offline().allow(patterns)
}

/// P7: every call is recorded with the rule that decided about it, whatever became of it.
#[test]
fn every_call_of_a_run_is_recorded() {
    let project = Project::offline().configure(&json!({
        "permissions": { "allow": ["filesystem:*"], "deny": ["shell:*"] },
    }));
    project.write("a.txt", "A");
    let code = "
        const text = await mcp.filesystem.read_text_file({ path: args.path });
        await Promise.allSettled([
            mcp.filesystem.write_file({ path: 'b.txt', content: text.repeat(20000) }),
            mcp.filesystem.read_text_file({ path: '../x' }),
            mcp.filesystem.read_text_file({ path: 'missing' }),
        ]);
        return text;";
    project.write("program.ts", code);
    let output = project.run(&["exec", "program.ts", "--json", "--args", r#"{ "path": "a.txt" }"#]);
    assert!(output.status.success());
    let run = latest(&project);
    assert_eq!(run["code"], code);
    assert_eq!(run["args"], json!({ "path": "a.txt" }));
    assert_eq!(
        (&run["status"], &run["mode"], &run["result"]),
        (&json!("completed"), &json!("run"), &json!("A"))
    );
    assert_eq!(run["policy"]["rules"]["deny"], json!(["shell:*"]));
    assert_eq!(run["plan"]["dag"]["tasks"].as_array().unwrap().len(), 4);
    let calls = run["calls"].as_array().unwrap();
    let facts: Vec<_> = calls.iter().map(|call| (&call["call"], &call["status"])).collect();
    let mut sorted: Vec<String> =
        facts.iter().map(|(call, status)| format!("{call} {status}")).collect();
    sorted.sort();
    assert_eq!(
        sorted,
        [r#""1" "success""#, r#""2" "success""#, r#""3" "denied""#, r#""4" "error""#],
    );
    let by_name = |name: &str| calls.iter().find(|call| call["call"] == name).unwrap();
    assert_eq!(by_name("1")["decision"], "`allow` has `filesystem:*` in `.pml.json`");
    assert_eq!(by_name("1")["output"], "A");
    assert_eq!(by_name("2")["arguments"]["content"].as_str().unwrap().len(), 20_000);
    assert_eq!(by_name("3")["error"]["code"], "PATH_OUTSIDE_WORKSPACE");
    assert_sound(&project);

    // A refused program has made no call.
    let (refused, code) = project.exec("return await mcp.shell.exec({ command: ['true'] })");
    failure(&refused, "PERMISSION_DENIED");
    assert_eq!(code, 3);
    let (list, _) = runs(&project, &["list"]);
    let steps: Vec<&Value> =
        list["runs"].as_array().unwrap().iter().map(|run| &run["total_steps"]).collect();
    assert_eq!(steps, [0, 4], "{list}");
}

/// A program that a rule denies before it starts is recorded, with the rule. A dry run is not.
#[test]
fn refused_programs_are_recorded() {
    let project = Project::offline().configure(&json!({ "permissions": { "deny": ["shell:*"] } }));
    let program = "await mcp.shell.exec({ command: ['rm', args.what] })";
    project.write("rm.ts", program);
    let arguments = ["exec", "rm.ts", "--args", r#"{"what":"x"}"#];
    assert_eq!(project.run(&arguments).status.code(), Some(3));
    let run = latest(&project);
    assert_eq!((&run["status"], &run["calls"]), (&json!("failed"), &json!([])), "{run:#}");
    assert_eq!((&run["code"], &run["args"]), (&json!(program), &json!({ "what": "x" })));
    assert_eq!(run["error"]["code"], "PERMISSION_DENIED");
    assert!(run["error"]["message"].as_str().unwrap().contains("`deny` has `shell:*`"), "{run:#}");
    project.run(&[&arguments[..], &["--dry-run"]].concat());
    let (list, _) = runs(&project, &["list"]);
    assert_eq!(list["runs"].as_array().map(Vec::len), Some(1), "{list:#}");
    assert_sound(&project);
}

/// Questions and answers are recorded before they take effect.
#[test]
fn answers_are_recorded() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let code = "return await mcp.filesystem.write_file({ path: 'a.txt', content: 'x' })";
    let asked = pml.execute(code);
    assert_eq!(question(&asked)["context"]["tool"], "filesystem:write_file");
    let run = latest(&project);
    assert_eq!(
        (&run["status"], &run["calls"], &run["approvals"]),
        (&json!("running"), &json!([]), &json!([]))
    );
    success(&pml.resume(&asked, true, false));
    let run = latest(&project);
    assert_eq!(run["calls"][0]["decision"], "approved through the agent");
    let approval = &run["approvals"][0];
    assert_eq!((&approval["answer"], &approval["count"]), (&json!("once"), &json!(1)));
    assert_eq!(approval["arguments"], json!({ "path": "a.txt", "content": "x" }));
    assert_eq!(approval["reason"], "no rule in `.pml.json` matches `filesystem:write_file`");
    let shown = asked["description"].as_str().unwrap();
    let hash = format!("sha256-{}", data_encoding::BASE64.encode(&Sha256::digest(shown)));
    assert_eq!(approval["shown_hash"], hash);

    let asked = pml.execute(code);
    failure(&pml.resume(&asked, false, false), "APPROVAL_DENIED");
    let run = latest(&project);
    assert_eq!(
        (&run["status"], &run["approvals"][0]["answer"]),
        (&json!("failed"), &json!("abort"))
    );
    assert_eq!(run["calls"][0]["status"], "denied");
    assert_sound(&project);
}

/// Nothing runs that cannot be recorded.
#[test]
fn an_unusable_store_stops_programs() {
    for broken in
        ["a file that is no database, and of more than one hundred bytes".repeat(3), String::new()]
    {
        let project = allowing(&["filesystem:*"]);
        let code = "return await mcp.filesystem.write_file({ path: 'a.txt', content: 'x' })";
        std::fs::create_dir_all(project.path(".pml")).unwrap();
        if broken.is_empty() {
            std::fs::create_dir(project.path(".pml/runs.db")).unwrap();
        } else {
            project.write(".pml/runs.db", &broken);
        }
        let (refused, exit) = project.exec(code);
        failure(&refused, "RUN_STORE_UNAVAILABLE");
        assert_eq!(exit, 4);
        assert!(!project.path("a.txt").exists());
        // A program that cannot act is refused, too: the rule has no exceptions.
        failure(&project.exec("return 1").0, "RUN_STORE_UNAVAILABLE");
    }
}

/// An answer counts only once it is recorded: if the store is lost while a question waits, the call is not made.
#[test]
fn an_answer_that_cannot_be_recorded_does_not_count() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let code = "return await mcp.filesystem.write_file({ path: 'a.txt', content: 'x' })";
    let asked = pml.execute(code);
    question(&asked);
    std::fs::remove_dir_all(project.path(".pml")).unwrap();
    let message = pml.resume(&asked, true, false);
    assert!(
        failure(&message, "RUN_STORE_UNAVAILABLE").contains("deleted or replaced"),
        "{message}"
    );
    assert!(!project.path("a.txt").exists());
    // The same holds for a call that needs no answer.
    let allowed = allowing(&["filesystem:*"]);
    allowed.write(
        "program.ts",
        "await mcp.filesystem.write_file({ path: 'first', content: '' });
         while (true) {
             const names = await mcp.filesystem.list_directory({ path: '.' });
             if (names.includes('go')) break;
             await new Promise((go) => setTimeout(go, 20));
         }
         return await mcp.filesystem.write_file({ path: 'a.txt', content: 'x' });",
    );
    let running = std::thread::scope(|scope| {
        let running = scope.spawn(|| allowed.run(&["exec", "program.ts", "--json"]));
        poll("the program to write", PATIENCE, || allowed.path("first").exists().then_some(()));
        std::fs::remove_dir_all(allowed.path(".pml")).unwrap();
        allowed.write("go", "");
        running.join().expect("it ends")
    });
    let refused: Value = serde_json::from_slice(&running.stdout).unwrap();
    failure(&refused, "RUN_STORE_UNAVAILABLE");
    assert!(!allowed.path("a.txt").exists());
    // The next run begins a new store, which names the one before it.
    success(&pml.execute("return 1"));
    let (verified, code) = runs(&project, &["verify"]);
    assert_eq!((code, verified["earlier_stores"].as_array().unwrap().len()), (0, 1), "{verified}");
}

/// A call whose end cannot be recorded fails the run, also if it is the last one and the program ignores it.
#[test]
fn a_result_that_cannot_be_recorded_is_not_returned() {
    for code in [
        "return await mcp.shell.exec({ command: ['rm', '-r', '.pml'] })",
        "try { await mcp.shell.exec({ command: ['rm', '-r', '.pml'] }) } catch {} return 1",
        "await Promise.race([mcp.shell.exec({ command: ['rm', '-r', '.pml'] })]); return 1",
    ] {
        let (refused, exit) = Project::offline().allow_commands(&["rm"]).exec(code);
        let message = failure(&refused, "RUN_STORE_UNAVAILABLE");
        assert!(message.contains("deleted or replaced") && exit == 4, "{exit}: {refused}");
    }
}

/// RP-09: a secret that a server returns is not in the record.
#[test]
fn secrets_of_servers_are_not_recorded() {
    let canary = "canary-7f3a9c1e5b2d";
    let mut server = Project::offline().node_server("server-everything", &[]);
    server["env"] = json!({ "EVERYTHING_TOKEN": "${CANARY}", "EVERYTHING_PORT": "12345678" });
    let project = Project::offline().set("CANARY", canary).configure(&json!({
        "permissions": { "allow": ["*"] },
        "mcpServers": { "everything": server },
    }));
    let code = "return await mcp.everything['get-env']({})";
    let (done, _) = project.exec(code);
    assert!(success(&done).to_string().contains(canary), "the program gets it: {done}");
    let run = latest(&project).to_string();
    assert!(run.contains("EVERYTHING_TOKEN") && run.contains("12345678"), "{run}");
    assert!(!run.contains(canary), "{run}");
    let contents = std::fs::read_dir(project.path(".pml/contents")).into_iter().flatten();
    let files = contents.map(|entry| entry.unwrap().path());
    for file in files.chain(["runs.db", "runs.db-wal"].map(|name| project.path(".pml").join(name)))
    {
        let bytes = std::fs::read(&file).unwrap_or_default();
        let found = bytes.windows(canary.len()).any(|part| part == canary.as_bytes());
        assert!(!found, "`{}` has the secret", file.display());
    }
}

/// RP-01: a change by an SQLite shell is found and named.
#[test]
fn a_change_by_another_program_is_named() {
    let project = allowing(&["filesystem:*"]);
    project.write("a.txt", "A");
    let (done, _) = project.exec("return await mcp.filesystem.read_text_file({ path: 'a.txt' })");
    success(&done);
    assert_sound(&project);
    let python = |sql: &str| {
        let script = "import sqlite3, sys; d = sqlite3.connect('.pml/runs.db'); d.executescript(sys.argv[1]); d.commit()";
        let mut command = Command::new("python3");
        command.args(["-c", script, sql]).current_dir(project.workspace());
        command.output().expect("the tests need Python")
    };
    let refused = python("update records set body = replace(body, 'a.txt', 'b.txt')");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("records are never changed"));
    assert_sound(&project);
    let changed = python(
        "drop trigger records_are_not_changed;
         update records set body = replace(body, 'a.txt', 'b.txt') where seq = 4;",
    );
    assert!(changed.status.success());
    let (verified, code) = runs(&project, &["verify"]);
    assert_eq!((&verified["faults"][0]["record"], code), (&json!(4), 1), "{verified}");
    let text = project.run(&["runs", "verify"]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.starts_with("Record 4 was changed, inserted or moved"), "{text}");
    // The store is not used any more, and nothing runs unrecorded.
    failure(&project.exec("return 1").0, "RUN_STORE_UNAVAILABLE");
}

/// RP-07, P7: after `kill -9` at any instant the store verifies, and every effect has a record.
#[test]
fn sigkill_leaves_a_sound_store() {
    let project = allowing(&["filesystem:*"]);
    let code = "
        for (let round = 0; ; round++)
            await Promise.all(Array.from({ length: 8 }, (_, i) =>
                mcp.filesystem.write_file({ path: `${args.run}-${round * 8 + i}.txt`, content: 'x' })));";
    project.write("program.ts", code);
    let kills = scaled(200).max(10);
    for kill in 0..kills {
        let args = json!({ "run": kill }).to_string();
        let mut pml = project.command(&["exec", "program.ts", "--json", "--args", &args]);
        pml.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut pml = pml.spawn().expect("it starts");
        // After another number of effects each time, at an instant that the scheduler chooses.
        let last = project.path(&format!("{kill}-{}.txt", (kill * 7) % 60));
        poll("the program to write a file", PATIENCE, || last.exists().then_some(()));
        pml.kill().expect("it is running");
        pml.wait().expect("it was killed");
    }
    assert_sound(&project);
    let (list, _) = runs(&project, &["list", "--limit", "1000"]);
    let list = list["runs"].as_array().unwrap();
    assert_eq!(list.len(), kills);
    let mut effects = 0;
    for run in list {
        let (run, _) = runs(&project, &["show", run["run_id"].as_str().unwrap()]);
        assert_eq!(run["status"], "stopped");
        let number = run["args"]["run"].as_u64().unwrap();
        let calls = run["calls"].as_array().unwrap();
        let path = |call: &Value| call["arguments"]["path"].as_str().unwrap().to_owned();
        // At most as many as the program has in flight.
        let open = calls.iter().filter(|call| call["status"] == "indeterminate").count();
        assert!(open <= 8, "{open}");
        for call in calls.iter().filter(|call| call["status"] == "success") {
            assert!(project.path(&path(call)).exists(), "{call}");
        }
        let known: Vec<String> = calls.iter().map(path).collect();
        let written = (0..1_000)
            .map(|index| format!("{number}-{index}.txt"))
            .filter(|name| project.path(name).exists());
        for name in written {
            assert!(known.contains(&name), "`{name}` was written without a record");
            effects += 1;
        }
    }
    assert!(effects > kills, "{effects}");
}

/// CL-14: several `pml` in one project write one chain.
#[test]
fn several_processes_share_the_store() {
    let project = allowing(&["filesystem:*"]);
    project.write("a.txt", "A");
    project.write(
        "program.ts",
        "for (let i = 0; i < 20; i++) await mcp.filesystem.read_text_file({ path: 'a.txt' }); return 1",
    );
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let output = project.run(&["exec", "program.ts"]);
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            });
        }
    });
    assert_sound(&project);
    let (list, _) = runs(&project, &["list"]);
    let list = list["runs"].as_array().unwrap();
    assert_eq!(list.len(), 6);
    for run in list {
        assert_eq!((&run["status"], &run["total_steps"]), (&json!("completed"), &json!(20)));
    }
}

/// The commands in a project without runs, and for a run that is not there.
#[test]
fn the_commands_say_when_there_is_nothing() {
    let project = Project::offline();
    let text = |arguments: &[&str]| {
        let output = project.run(&[&["runs"], arguments].concat());
        let text = [output.stdout, output.stderr].concat();
        (String::from_utf8_lossy(&text).into_owned(), output.status.code().unwrap())
    };
    for arguments in [&["list"][..], &["verify"]] {
        let (shown, code) = text(arguments);
        assert!(shown.starts_with("No run is recorded in `") && code == 0, "{shown}");
    }
    let (shown, code) = text(&["show"]);
    assert!(shown.contains("no run is recorded in this project") && code == 2, "{shown}");
    success(&project.exec("return 1").0);
    success(&project.exec("return 2").0);
    let (shown, code) = text(&["show", "zz"]);
    assert!(shown.contains("no run is recorded as `zz`") && code == 2, "{shown}");
    let (shown, code) = text(&["show", "0"]);
    assert!(shown.contains("several runs begin with `0`") && code == 2, "{shown}");
    // Text from the store cannot control the terminal.
    success(&project.exec("// \u{1b}[2J\u{202e}\nreturn '\\u001b[2J'").0);
    let (shown, code) = text(&["show"]);
    assert!(code == 0 && !shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown}");
    assert!(shown.contains("\\u{1b}[2J\\u{202e}"), "{shown}");
}
