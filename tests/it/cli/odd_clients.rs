//! Unusual behaviour of clients, users and files while `pml` runs.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::binaries::built;
use crate::support::cli::Project;
use crate::support::expect::{failure, question, success};
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::processes::Pid;
use crate::support::terminal::approve;
use crate::support::{PATIENCE, poll};

/// A project without a gateway, with these permissions.
fn project(permissions: &Value) -> Project {
    Project::offline().configure(&json!({ "permissions": permissions }))
}

/// CL-02: a request that JSON parsers reject still gets an error response, with the id of the request.
#[test]
fn unparsable_requests_get_an_error_with_their_id() {
    let mut pml = project(&json!({})).stdio();
    let deep = format!("{}{}", "[".repeat(3_000), "]".repeat(3_000));
    for (id, params) in [(901, deep.as_str()), (902, r#""\ud800""#), (903, "1e999")] {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\",\"params\":{params}}}\n"
        );
        pml.write(line.as_bytes());
        assert_eq!(pml.answer(id)["error"]["code"], -32700);
    }
    pml.write(b"{\"jsonrpc\":\"2.0\",\"id\":904,\"method\":\"tools/call\",\"params\":[1]}\n");
    assert_eq!(pml.answer(904)["error"]["code"], -32600);
    assert_eq!(success(&pml.execute("return 1")), 1);
}

/// A client may send notifications and responses before its first request.
#[test]
fn notifications_and_responses_before_the_first_request_are_accepted() {
    let project = project(&json!({}));
    let mut pml = StdioClient::spawn(project.command(&["stdio"]), Era::Stateless, &project.log());
    pml.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    pml.write(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n");
    assert_eq!(success(&pml.execute("return 2")), 2);
}

/// A notification after a probe, which begins no session, does not end the connection.
#[test]
fn a_notification_after_a_probe_is_accepted() {
    let project = project(&json!({}));
    let mut pml = StdioClient::spawn(project.command(&["stdio"]), Era::Stateless, &project.log());
    let probe = json!({ "jsonrpc": "2.0", "id": 905, "method": "server/discover", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }}});
    pml.write(format!("{probe}\n").as_bytes());
    pml.answer(905);
    pml.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    assert_eq!(success(&pml.execute("return 3")), 3);
}

/// CL-03: a client that closes its end of stdout has left; `pml` exits although stdin is still open.
#[test]
fn pml_exits_when_the_client_closes_stdout() {
    let project = project(&json!({ "allow": ["*"] }));
    let mut child = project
        .command(&["stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "pml-it", "version": "1" },
    }});
    stdin.write_all(format!("{hello}\n").as_bytes()).unwrap();
    // `stdin` is still open: only the closed stdout can end it.
    poll("`pml` to end", PATIENCE, || child.try_wait().unwrap());
}

/// CL-04: rules that the user changes while `pml` runs apply to the next program,
/// and to the next call of a paused one.
#[test]
fn changed_rules_apply_to_the_next_call() {
    let touch =
        |file: &str| format!("await mcp.shell.exec({{ command: ['touch', '{file}'] }}); return 1");
    let project = Project::offline().allow_commands(&["touch"]);
    let mut pml = project.stdio();
    assert_eq!(success(&pml.execute(&touch("a"))), &json!(1));
    project.write(".pml.json", r#"{"permissions":{"deny":["shell:*"]}}"#);
    failure(&pml.execute(&touch("b")), "PERMISSION_DENIED");
    project.write(".pml.json", "{");
    failure(&pml.execute(&touch("b")), "CONFIG_INVALID");
    // An edit that was not trusted grants nothing, even what an earlier, trusted version granted.
    project.write(".pml.json", r#"{"permissions":{"allow":["shell:exec","*"]}}"#);
    let waiting = pml.execute(&touch("b"));
    question(&waiting);
    project.write(".pml.json", r#"{"permissions":{"deny":["shell:*"]}}"#);
    approve(&project, &waiting, false);
    failure(&pml.resume(&waiting, true, false), "PERMISSION_DENIED");
    assert!(project.path("a").exists() && !project.path("b").exists());
}

/// A program may return while one of its calls waits for approval. The answer then gets the result of the run,
/// not `WORKFLOW_LOST`.
#[test]
fn a_run_that_ended_during_a_question_returns_its_result() {
    let project = project(&json!({ "allow": ["filesystem:*"] }));
    let mut pml = project.stdio();
    let waiting = pml.execute(
        "mcp.shell.exec({ command: ['true'] }).catch(() => {});
         await new Promise((go) => setTimeout(go, 300));
         await mcp.filesystem.write_file({ path: 'end', content: '' });
         return 'its end';",
    );
    question(&waiting);
    // The program continues while its call waits.
    poll("the program to end", PATIENCE, || project.path("end").exists().then_some(()));
    approve(&project, &waiting, false);
    assert_eq!(success(&pml.resume(&waiting, true, false)), "its end");
}

/// One "always" also approves the other pending calls of the same tool in the same program.
#[test]
fn always_also_approves_concurrent_calls_of_the_tool() {
    let project = project(&json!({}));
    let mut pml = project.stdio();
    let waiting = pml.execute(
        "return (await Promise.all(['a', 'b', 'c'].map((name) =>
             mcp.filesystem.write_file({ path: name, content: `${Math.random()}` })))).length",
    );
    approve(&project, question(&waiting), true);
    assert_eq!(success(&pml.resume(&waiting, true, false)), 3);
    assert!(["a", "b", "c"].iter().all(|name| project.path(name).exists()));
}

/// CL-14: paused runs do not occupy the places for running programs: there are more of them here than places.
#[test]
fn paused_runs_do_not_block_new_programs() {
    let project = project(&json!({}));
    let mut pml = project.stdio();
    for _ in 0..70 {
        question(&pml.execute("return await mcp.shell.exec({ command: ['true'] })"));
    }
    assert_eq!(success(&pml.execute("return 'still here'")), "still here");
}

/// AP-09: Ctrl-C ends a command while it reads stdin.
#[test]
fn sigint_ends_a_command_that_reads_stdin() {
    let project = project(&json!({}));
    for command in [&["exec", "-"][..], &["analyze", "-"], &["secrets", "set", "NAME"], &["login"]]
    {
        let mut child = project
            .command(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let pid = Pid::of(child.id());
        poll("the command to listen for signals", PATIENCE, || listens_for_int(pid).then_some(()));
        pid.signal("INT");
        let status = poll("the command to end", PATIENCE, || child.try_wait().unwrap());
        assert!(!status.success(), "{command:?}: {status}");
        let mut shown = String::new();
        child.stderr.take().unwrap().read_to_string(&mut shown).unwrap();
        assert!(!shown.contains("panicked"), "{shown}");
        drop(stdin);
    }
}

/// AP-09: Ctrl-C at a question denies the call and ends the command.
#[test]
fn ctrl_c_at_a_question_denies_it() {
    let project = project(&json!({}));
    project.write("a.ts", "await mcp.shell.exec({ command: ['touch', 'made'] })");
    let line = format!("'{}' exec a.ts", built("pml").display());
    // `script` gives the command a terminal.
    let mut child = project
        .wrap(Command::new("script"), &["--quiet", "--return", "--command", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut shown = Vec::new();
    let mut byte = [0];
    while !shown.ends_with(b"Allow?") {
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&shown));
        shown.push(byte[0]);
    }
    stdin.write_all(b"\x03").unwrap();
    let status = poll("the command to end", PATIENCE, || child.try_wait().unwrap());
    assert!(!status.success());
    assert!(!project.path("made").exists());
}

/// Returns whether a process has a handler for `SIGINT`, which is signal 2 and thus bit 1 of the mask.
fn listens_for_int(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.number));
    let status = status.unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|m| m & 2 != 0)
}
