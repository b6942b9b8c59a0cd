//! What changes while a locked program runs, or is known only then.

use std::process::Stdio;

use serde_json::{Value, json};

use super::{check, exec, locked, refused, run};
use crate::registry::capabilities::{DOUBLE, author, published};
use crate::support::cli::Project;
use crate::support::expect::{failure, success};
use crate::support::{PATIENCE, poll};

/// An MCP server whose tool makes a file. `DESCRIBED` stands for its description.
const MINE: &str = r#"import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "mine", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "touch", "description": "DESCRIBED", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        open("touched.txt", "w").close()
        result = {"content": [{"type": "text", "text": "touched"}]}
    else:
        result = None
    if "id" in message:
        outcome = {"error": {"code": -32601, "message": "unknown"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
"#;

/// Returns a program that makes `began.txt`, and makes a call once there is `go.txt`.
fn waiting(call: &str) -> String {
    format!(
        "await mcp.filesystem.write_file({{ path: 'began.txt', content: '' }});
        let goes = false;
        while (!goes) {{
            try {{ await mcp.filesystem.read_text_file({{ path: 'go.txt' }}); goes = true }} catch {{
                await new Promise((done) => setTimeout(done, 100));
            }}
        }}
        return {call}"
    )
}

/// A version that is published after the comparison is not called: the calls on the gateway name the one that was
/// compared.
#[test]
fn a_version_that_is_published_during_the_run_is_not_called() {
    let author = author();
    published(&author, "maths.double", DOUBLE);
    let project = Project::of(&author).allow(&["*"]);
    let program = waiting("await mcp.maths.double({ n: 21 })");
    locked(&project, &program);
    let envelope = std::thread::scope(|scope| {
        let run = scope.spawn(|| exec(&project));
        poll("the program", PATIENCE, || project.path("began.txt").exists().then_some(()));
        published(&author, "maths.double", "/** Triples. */ return 3 * args.n");
        project.write("go.txt", "");
        run.join().unwrap()
    });
    assert_eq!(success(&envelope), 42);
    assert!(refused(&project).contains("`maths:double`: version 0.1.0 → 0.1.1"));
}

/// A server of `.pml.json` that says something else of its tool than what was locked is not called, even if that is found
/// out only when it runs. How it is started is locked, too; the value of a secret is not.
#[test]
fn a_changed_server_of_the_project_is_not_called() {
    let entry = |script: &str, token: &str| {
        json!({
            "permissions": { "allow": ["mine:*"] },
            "mcpServers": { "mine": { "command": "python3", "args": [script], "env": { "MINE_TOKEN": token } } },
        })
    };
    let program = "try { return await mcp.mine.touch({}) } catch { return 'caught' }";
    let project = Project::offline().configure(&entry("mine.py", "one"));
    project.write("mine.py", MINE);
    let said = locked(&project, program);
    let unknown =
        "Not known, so not locked:\n- `mine:touch`: schema: its server has not listed its tools";
    assert!(said.contains(unknown), "{said}");
    assert!(!project.path("touched.txt").exists());
    assert_eq!(success(&exec(&project)), "touched");

    // A search lists its tools, so that they can be locked.
    assert_eq!(run(&project, &["search", "mine:*"]).0, 0);
    let (code, said, _) = run(&project, &["lock", "a.ts"]);
    assert!(code == 0 && said.starts_with("a.ts.lock was written: 1 tool"), "{said}");
    assert!(!said.contains("Not known"), "{said}");
    assert_eq!(success(&exec(&project)), "touched");
    let secret = project.configure(&entry("mine.py", "two"));
    assert_eq!(success(&exec(&secret)), "touched");

    std::fs::remove_file(secret.path("touched.txt")).unwrap();
    secret.write("mine.py", MINE.replace("DESCRIBED", "Touches all files"));
    // What is pinned of the server itself does not matter to the program's lock.
    assert_eq!(run(&secret, &["remove", "mine"]).0, 0);
    let envelope = exec(&secret);
    let message = failure(&envelope, "INTEGRITY_MISMATCH");
    assert!(message.contains("another description or schema of `mine:touch`"), "{message}");
    assert!(!secret.path("touched.txt").exists());
    // Since then it is known before the program starts.
    let message = refused(&secret);
    assert!(message.contains("`mine:touch`: description or schema sha256-"), "{message}");
    let (code, checked) = check(&secret);
    assert_eq!((code, &checked["tools"][0]["field"]), (2, &json!("schema")), "{checked:#}");

    secret.write("other.py", MINE);
    let moved = secret.configure(&entry("other.py", "two"));
    let message = refused(&moved);
    assert!(message.contains("`mine:touch`: start command sha256-"), "{message}");
    let (_, checked) = check(&moved);
    assert_eq!(checked["not_compared"], json!([{ "tool": "mine:touch" }]), "{checked:#}");
    assert!(!moved.path("touched.txt").exists());
}

/// Returns the rules and the server of the programs that are stopped.
fn entry(arguments: &[&str]) -> Value {
    json!({
        "permissions": { "allow": ["*"] },
        "mcpServers": { "mine": { "command": "python3", "args": arguments } },
    })
}

/// Starts `a.ts`, which waits before it calls `mine:touch`, and stops it; then lets it go on.
fn stopped(project: &Project) {
    let mut pml = project.command(&["exec", "a.ts"]);
    pml.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut pml = pml.spawn().unwrap();
    // Until the first call has its end in the record: else it might have taken effect or not.
    poll("a second call", PATIENCE, || {
        let (_, said, _) = run(project, &["runs", "show", "last", "--json"]);
        let shown: Value = serde_json::from_str(&said).ok()?;
        shown["calls"].as_array().filter(|calls| calls.len() > 1).map(drop)
    });
    pml.kill().unwrap();
    pml.wait().unwrap();
    project.write("go.txt", "");
}

fn resume(project: &Project, options: &[&str]) -> Value {
    let all = [&["runs", "resume", "last", "--json"], options].concat();
    let (_, said, warned) = run(project, &all);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}{warned}"))
}

/// A run that was stopped goes on only with the tools that it was locked to when it began.
#[test]
fn a_locked_run_is_resumed_under_its_lock() {
    let project = Project::offline().configure(&entry(&["mine.py"]));
    project.write("mine.py", MINE);
    locked(&project, &waiting("await mcp.mine.touch({})"));
    stopped(&project);
    // The lock of the file does not matter any more.
    std::fs::remove_file(project.path("a.ts.lock")).unwrap();
    let changed = project.configure(&entry(&["mine.py", "more"]));
    let refused = resume(&changed, &[]);
    let message = failure(&refused, "INTEGRITY_MISMATCH");
    assert!(message.contains("`mine:touch`: start command sha256-"), "{message}");
    assert!(!changed.path("touched.txt").exists());
    let restored = changed.configure(&entry(&["mine.py"]));
    assert_eq!(success(&resume(&restored, &[])), "touched");
}

/// LK-01: `--frozen` holds for a run that goes on, too: nothing is pinned, and a program without a lock stays stopped.
#[test]
fn a_frozen_run_goes_on_with_what_is_locked() {
    let project = || {
        let project = Project::offline().configure(&entry(&["mine.py"]));
        project.write("mine.py", MINE);
        project
    };
    let pinned = |project: &Project| std::fs::read(project.path(".pml/mcp.lock")).ok();
    let program = waiting("await mcp.mine.touch({})");
    let unlocked = project();
    unlocked.write("a.ts", &program);
    stopped(&unlocked);
    let (code, _, warned) = run(&unlocked, &["runs", "resume", "last", "--frozen"]);
    assert_eq!(code, 2, "{warned}");
    assert!(warned.contains("had no lock, and `--frozen` was given"), "{warned}");
    assert_eq!(success(&resume(&unlocked, &[])), "touched");

    let lacking = project();
    locked(&lacking, &program);
    stopped(&lacking);
    let before = pinned(&lacking);
    let refused = resume(&lacking, &["--frozen"]);
    let message = failure(&refused, "CONFIG_INVALID");
    assert!(message.contains("the files of the MCP server `mine`"), "{message}");
    assert_eq!(pinned(&lacking), before);
    assert!(!lacking.path("touched.txt").exists());

    // With the lock of somebody who ran it, it goes on.
    let complete = project();
    locked(&complete, &program);
    stopped(&complete);
    std::fs::copy(unlocked.path(".pml/mcp.lock"), complete.path(".pml/mcp.lock")).unwrap();
    let before = pinned(&complete);
    assert_eq!(success(&resume(&complete, &["--frozen"])), "touched");
    assert_eq!(pinned(&complete), before);
}
