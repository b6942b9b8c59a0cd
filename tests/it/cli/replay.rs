//! `pml replay`: the program of a recorded run runs again with the recorded answers. Nothing is called, and the replay is
//! recorded as a run of its own.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::registry::capabilities::{author, published};
use crate::support::binaries::built;
use crate::support::cli::{Project, text};
use crate::support::expect::{question, success};
use crate::support::terminal::say_yes;
use crate::support::{PATIENCE, poll, scaled};

/// What programs are made of. Each adds something to `seen` that depends on answers, their order, time or chance.
const PARTS: [&str; 12] = [
    "seen.push(Date.now(), new Date().getTimezoneOffset(), new Date().toString());",
    "seen.push(Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(4))]);",
    "seen.push(await mcp.filesystem.read_text_file({ path: 'a.txt' }));",
    "seen.push(await Promise.all([1, 2, 3].map((n) => mcp.filesystem.get_file_info({ path: `${n}.txt` }))));",
    "seen.push(await Promise.race(['1.txt', '2.txt', '3.txt'].map((path) => mcp.filesystem.read_text_file({ path }))));",
    "const order = []; await Promise.all([3, 1, 2].map(async (n) => { await mcp.filesystem.read_text_file({ path: `${n}.txt` }); order.push(n); })); seen.push(order);",
    "try { await mcp.filesystem.read_text_file({ path: 'missing' }); } catch (error) { seen.push(error.name, error.message, error.code); }",
    "const slow = new Promise((done) => setTimeout(() => done('timer'), Math.random() * 6)); seen.push(await Promise.race([slow, mcp.filesystem.read_text_file({ path: '1.txt' }).then(() => 'call')]));",
    "await new Promise((done) => setTimeout(done, 3)); seen.push(Date.now());",
    "await mcp.filesystem.write_file({ path: 'out.txt', content: `${Math.random()}` });",
    "if (Math.random() < 0.5) seen.push(await mcp.filesystem.list_directory({ path: '.' })); else console.log(Date.now());",
    "seen.push((1234.5).toLocaleString(), ['ä', 'a', 'z'].sort((a, b) => a.localeCompare(b)), new Intl_().x);",
];

/// Returns the n-th program.
fn program(n: usize) -> String {
    let mut out = "class Intl_ { x = typeof Intl; }\nconst seen = [];\n".to_owned();
    for place in 0..3 + n % 5 {
        // A different part each time, in a different order.
        let part = PARTS[(n * 7 + place * (5 + n % 3)) % PARTS.len()];
        out += &format!("{{ {part} }}\n");
    }
    if n.is_multiple_of(11) {
        out += "throw new TypeError(`at ${Date.now()}`);\n";
    }
    out + "return seen;\n"
}

/// Runs `pml replay` in another environment; returns what it prints as JSON.
fn replay(project: &Project, options: &[&str], round: usize) -> (Value, i32) {
    replay_by(project, Command::new(built("pml")), options, round)
}

/// The same with a command that starts `pml`.
fn replay_by(project: &Project, by: Command, options: &[&str], round: usize) -> (Value, i32) {
    let mut command = project.wrap(by, &[&["replay"], options, &["--json"]].concat());
    let zones = ["UTC", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia"];
    command.env("TZ", zones[round % 4]).env("LANG", ["C", "de_DE.UTF-8"][round % 2]);
    command.env("LC_ALL", ["tr_TR.UTF-8", "C"][round % 2]);
    let output = command.output().unwrap();
    let shown = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    (shown, output.status.code().unwrap())
}

/// Returns `pml` under `strace`, which writes what it does with files and sockets to a log; `None` without `strace`.
fn traced(log: &Path) -> Option<Command> {
    Command::new("strace").arg("-V").output().ok()?;
    let mut strace = Command::new("strace");
    strace.args([
        "-f",
        "-qq",
        "-s",
        "4096",
        "-e",
        "trace=%file,socket,connect,bind",
        "-e",
        "signal=none",
        "-o",
    ]);
    strace.arg(log).arg(built("pml"));
    Some(strace)
}

/// Checks that a traced `pml` used no network, and no file of the project but its rules and its store.
#[track_caller]
fn assert_only_the_store(project: &Project, log: &Path) {
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("runs.db"), "the log has what it opened: {log}");
    for line in log.lines() {
        let is_network = ["AF_INET", "connect(", "bind("];
        let of_program = ["/a.txt", "/1.txt", "/2.txt", "/3.txt", "out.txt", "missing"];
        let relative = ["\"a.txt\"", "\"1.txt\"", "\"2.txt\"", "\"3.txt\""];
        let is_foreign = is_network.iter().chain(&of_program).chain(&relative);
        let found: Vec<_> = is_foreign.filter(|part| line.contains(**part)).collect();
        assert!(found.is_empty(), "{found:?}: {line}");
        // Named by its path, a file of the project is one of these.
        let root = format!("\"{}/", project.workspace().display());
        if let Some((_, rest)) = line.split_once(&root) {
            let own = [".pml/", ".pml\"", ".pml.json\"", ".git", ".env\""];
            assert!(own.iter().any(|own| rest.starts_with(own)), "{line}");
        }
    }
}

/// RP-04: whatever has changed around it, a replay has the recorded result, and changes nothing.
#[test]
fn replays_have_the_recorded_result() {
    let programs = scaled(100);
    let rounds = scaled(20).max(2);
    std::thread::scope(|threads| {
        for part in 0..2 {
            threads.spawn(move || {
                for n in (0..programs).filter(|n| n % 2 == part) {
                    replays_as_recorded(n, rounds);
                }
            });
        }
    });
}

fn replays_as_recorded(n: usize, rounds: usize) {
    let project = Project::offline().allow(&["filesystem:*"]);
    for name in ["a", "1", "2", "3"] {
        project.write(&format!("{name}.txt"), name);
    }
    let (ran, code) = project.exec(&program(n));
    let failed = n.is_multiple_of(11);
    assert_eq!(code, i32::from(failed), "{ran:#}");
    for name in ["a", "1", "2"] {
        project.write(&format!("{name}.txt"), "changed");
    }
    std::fs::remove_file(project.path("3.txt")).unwrap();
    let names = || {
        let entries = std::fs::read_dir(project.workspace()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let original = shown(&project, "last");
    let _ = std::fs::remove_file(project.path("out.txt"));
    let log = project.home().join("strace");
    for round in 0..rounds {
        // One of them under strace, which takes longer.
        let strace = (round == 1).then(|| traced(&log)).flatten();
        let is_traced = strace.is_some();
        let by = strace.unwrap_or_else(|| match round % 3 {
            // The lowest priority.
            2 => {
                let mut nice = Command::new("nice");
                nice.args(["-n", "19"]).arg(built("pml"));
                nice
            }
            _ => Command::new(built("pml")),
        });
        let (replayed, code) = replay_by(&project, by, &["last"], round);
        if is_traced {
            assert_only_the_store(&project, &log);
        }
        assert_eq!((code, &replayed["matches"]), (0, &json!(true)), "{}\n{replayed:#}", program(n));
        assert_eq!(replayed["result"], ran["result"], "{}", program(n));
        assert_eq!(replayed["console"], ran["console"]);
        assert_eq!(replayed["error"].is_object(), failed);
        // A call whose answer the program did not wait for may be without one this time.
        let made = ran["calls"].as_array().unwrap().len();
        assert!(replayed["calls"].as_u64().is_some_and(|calls| calls <= made as u64));
    }
    assert!(!project.path("out.txt").exists());
    assert!(before.len() - names().len() <= 1);
    // Each is a run of its own, with the result of the run, which is as it was.
    assert_eq!(shown(&project, "last"), original);
    let list = project.run(&["runs", "list", "--limit", "1000", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let replays: Vec<_> = list["runs"].as_array().unwrap().iter().collect();
    assert_eq!(replays.len(), rounds + 1, "{list:#}");
    for replay in &replays[..rounds] {
        assert_eq!((&replay["mode"], &replay["of"]), (&json!("replay"), &original["run_id"]));
        assert_eq!(replay["status"], original["status"]);
    }
    let verified = project.run(&["runs", "verify"]);
    assert!(verified.status.success(), "{}", text(&verified.stdout));
}

/// Returns a run as `pml runs show` shows it.
#[track_caller]
fn shown(project: &Project, run: &str) -> Value {
    let output = project.run(&["runs", "show", run, "--json"]);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

/// A replay is a run of its own: it names the run that it replays, how it compares, and the first call that differs. It
/// changes nothing, so it is neither undone, resumed nor replayed, and `last` is still the run that it replays.
#[test]
fn a_replay_is_recorded() {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("a.txt", "A");
    let program =
        "console.log('read'); const text = await mcp.filesystem.read_text_file({ path: 'a.txt' });
await mcp.filesystem.write_file({ path: 'b.txt', content: text }); return text;";
    let (ran, code) = project.exec(program);
    assert_eq!(code, 0, "{ran:#}");
    let original = shown(&project, "last");
    let (same, code) = replay(&project, &["last"], 0);
    assert_eq!((code, &same["not_recorded"]), (0, &json!(null)), "{same:#}");
    let of = |report: &Value| shown(&project, report["replay"].as_str().unwrap());
    let run = of(&same);
    assert_eq!((&run["mode"], &run["of"]), (&json!("replay"), &original["run_id"]));
    assert_eq!(run["replay"], json!({ "calls": 2, "matches": true, "left": null, "changed": [] }));
    for member in ["code", "args", "plan_hash", "policy", "result", "status"] {
        assert_eq!(run[member], original[member], "{member}");
    }
    assert_eq!((&run["calls"], &run["changes"]), (&json!([]), &json!([])));

    // Another program: what differs is on record, also what it would have called.
    project.write("c.ts", program.replace("'b.txt'", "'c.txt'"));
    let (other, code) = replay(&project, &["last", "--program", "c.ts"], 0);
    assert_eq!((code, &other["matches"]), (1, &json!(false)), "{other:#}");
    let run = of(&other);
    let arguments = json!({ "path": "c.txt", "content": "A" });
    assert_eq!(
        run["replay"]["left"],
        json!({ "call": 2, "tool": "filesystem:write_file", "arguments": arguments })
    );
    assert_eq!(run["replay"]["changed"][0]["error_code"], "CODE_HASH_MISMATCH", "{run:#}");
    assert_eq!(
        (&run["status"], &run["error"]["code"]),
        (&json!("failed"), &json!("REPLAY_MISMATCH"))
    );
    assert!(!project.path("c.txt").exists());
    // What it prints counts as well.
    project.write("d.ts", program.replace("'read'", "'other'"));
    let (other, code) = replay(&project, &["last", "--program", "d.ts"], 0);
    assert_eq!((code, &other["matches"]), (1, &json!(false)), "{other:#}");
    let output = project.run(&["replay", "last", "--program", "d.ts"]);
    let said = text(&output.stderr);
    assert!(said.contains("printed something else") && said.contains("Recorded as run "), "{said}");

    // For a person.
    let id = same["replay"].as_str().unwrap();
    let told = format!(
        "of run {}: 2 calls answered from the record; it ended as recorded",
        original["run_id"].as_str().unwrap()
    );
    for command in [&["runs", "show", id][..], &["report", id], &["report", id, "--format", "html"]]
    {
        let output = project.run(command);
        assert!(text(&output.stdout).contains(&told), "{command:?}: {}", text(&output.stdout));
    }
    let listed = text(&project.run(&["runs", "list"]).stdout);
    assert_eq!(listed.matches("(replay of ").count(), 4, "{listed}");
    for command in [&["replay", id][..], &["runs", "undo", id], &["runs", "resume", id]] {
        let output = project.run(command);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("CONFLICT"), "{command:?}: {}", text(&output.stderr));
    }
    let undone = project.run(&["runs", "undo", "last"]);
    assert!(undone.status.success(), "{}", text(&undone.stderr));
    assert!(!project.path("b.txt").exists());
    assert_eq!(shown(&project, original["run_id"].as_str().unwrap()), original);
    assert!(project.run(&["runs", "verify"]).status.success());
}

/// A replay whose record cannot be stored has called nothing that would need one. It goes on, and says so.
#[test]
fn a_replay_that_cannot_be_recorded_says_so() {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("a.txt", "A");
    project.exec("return await mcp.filesystem.read_text_file({ path: 'a.txt' })");
    // As in a copied project: the end of the store is not known to this user.
    let (before, _) = replay(&project, &["last"], 0);
    assert_eq!(before["not_recorded"], json!(null), "{before}");
    std::fs::remove_dir_all(project.home().join(".local/state/pml")).unwrap();
    let verified = project.run(&["runs", "verify", "--json"]).stdout;
    let (refused, code) = replay(&project, &["last"], 0);
    assert_eq!((code, &refused["error_code"]), (1, &json!("CONFLICT")), "{refused}");
    let (replayed, code) = replay(&project, &["last", "--unverified"], 0);
    assert_eq!((code, &replayed["matches"], &replayed["result"]), (0, &json!(true), &json!("A")));
    assert_eq!(replayed["replay"], json!(null));
    assert!(
        replayed["not_recorded"].as_str().is_some_and(|why| why.contains("copied")),
        "{replayed}"
    );
    assert_eq!(project.run(&["runs", "verify", "--json"]).stdout, verified);
}

/// What other servers answered is replayed as well: tools of the gateway, MCP servers, and capabilities with their own
/// calls. None of them is reached.
#[test]
fn a_replay_reaches_nobody() {
    let author = author();
    let code = "/** Doubles. */ return 2 * (await mcp.math.eval({ expression: '20 + 1' })) + (await mcp.filesystem.read_text_file({ path: 'a.txt' })).length;";
    published(&author, "demo:double", code);
    let project = Project::of(&author).allow(&["*"]);
    project.write("a.txt", "abc");
    let mut pml = project.stdio();
    let ran = pml.execute("const a = await mcp.demo.double({}); const b = await mcp.math.eval({ expression: '1 + 1' }); return [a, b, Date.now()];");
    let ran = match ran["status"].as_str() {
        Some("approval_required") => say_yes(&project, &mut pml, &ran),
        _ => ran,
    };
    let result = success(&ran).clone();
    assert_eq!((&result[0], &result[1]), (&json!(45), &json!(2)));
    drop(pml);
    std::fs::remove_file(project.path("a.txt")).unwrap();
    // Nobody listens there, and nobody is asked.
    let project = project.set("PML_CLOUD_URL", "http://127.0.0.1:1");
    let (replayed, code) = replay(&project, &["last"], 0);
    assert_eq!((code, &replayed["matches"], &replayed["result"]), (0, &json!(true), &result));
    assert_eq!(replayed["calls"], 2);
    let log = project.home().join("strace");
    let Some(strace) = traced(&log) else { return };
    let (replayed, code) = replay_by(&project, strace, &["last"], 0);
    assert_eq!((code, &replayed["matches"]), (0, &json!(true)), "{replayed}");
    assert_only_the_store(&project, &log);
}

/// A record that somebody has changed, and a run that has no end of its program, are not called the same.
#[test]
fn what_cannot_be_compared_is_said() {
    let project = Project::offline().allow(&["filesystem:*"]);
    let mut pml = project.stdio();
    // Denied: the program had no say in it.
    let asked = pml
        .execute("try { await mcp.shell.exec({ command: ['true'] }); } catch { return 'caught'; }");
    question(&asked);
    pml.resume(&asked, false, false);
    drop(pml);
    let (replayed, code) = replay(&project, &["last"], 0);
    assert_eq!((code, &replayed["matches"]), (0, &json!(null)), "{replayed}");
    // Stopped: there is nothing to compare with.
    project.write("a.txt", "a");
    project.write("p.ts", "const a = await mcp.filesystem.read_text_file({ path: 'a.txt' }); await mcp.filesystem.write_file({ path: 'b.txt', content: a }); await new Promise(() => setTimeout(() => {}, 60_000));");
    let mut stopped = project.command(&["exec", "p.ts"]);
    stopped.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut stopped = stopped.spawn().unwrap();
    poll("the write", PATIENCE, || project.path("b.txt").exists().then_some(()));
    stopped.kill().unwrap();
    stopped.wait().unwrap();
    project.exec("return 1");
    for run in ["nope", "0"] {
        let output = project.run(&["replay", run]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    }
    let (replayed, code) = replay(&project, &["last"], 0);
    assert_eq!((code, &replayed["matches"], &replayed["result"]), (0, &json!(true), &json!(1)));
    // Tampered: another answer than the one that was recorded.
    let database = project.path(".pml/runs.db");
    let changed = Command::new("python3")
        .args(["-c", "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); t = c.execute(\"select sql from sqlite_master where name = 'records_are_not_changed'\").fetchone()[0]; c.execute('DROP TRIGGER records_are_not_changed'); c.execute(\"update records set body = replace(body, 'return 1', 'return 2')\"); c.execute(t); c.commit()"])
        .arg(&database)
        .output()
        .unwrap();
    assert!(changed.status.success(), "{}", text(&changed.stderr));
    let (replayed, code) = replay(&project, &["last"], 0);
    assert_eq!((code, &replayed["error_code"]), (1, &json!("CONFLICT")), "{replayed}");
}
