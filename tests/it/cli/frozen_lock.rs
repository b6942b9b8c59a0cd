//! `pml exec --frozen`: nothing is added to `.pml/mcp.lock`.

use serde_json::{Value, json};

use super::locked_packages::LOCK;
use super::server_starts::RUNNER;
use crate::registry::capabilities::{author, published};
use crate::support::cli::{Project, text};
use crate::support::terminal::on_terminal;

const CALL: &str = "return (await mcp.notes.add({})).names.length > 0";

fn project() -> Project {
    let server = json!({ "command": "node", "args": ["server.js"], "network": [] });
    let project = Project::offline();
    project.write("server.js", RUNNER);
    let project = project.configure(
        &json!({ "permissions": { "allow": ["*"] }, "mcpServers": { "notes": server } }),
    );
    project.write("call.ts", CALL);
    assert!(project.run(&["lock", "call.ts"]).status.success());
    project
}

/// Runs the program; returns what it said.
#[track_caller]
fn exec(project: &Project, flags: &[&str], expected: i32) -> String {
    let output = project.run(&[&["exec"], flags, &["call.ts"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(expected), "{said}");
    said
}

/// Checks that a frozen run is refused because the lock lacks something, and leaves the lock as it is.
#[track_caller]
fn refused(project: &Project, what: &str) {
    let before = std::fs::read(project.path(LOCK)).ok();
    let said = exec(project, &["--frozen"], 2);
    let words = format!(
        "does not have {what}, and `--frozen` was given; run it once without it, and commit"
    );
    assert!(said.contains(&words), "{said}");
    assert_eq!(std::fs::read(project.path(LOCK)).ok(), before);
}

/// LK-01: files and tools that the lock does not have are refused by name, and nothing is pinned.
#[test]
fn nothing_is_pinned_by_a_frozen_run() {
    let project = project();
    refused(&project, "the files of the MCP server `notes` as they are now");
    exec(&project, &[], 0);
    let whole = project.read(LOCK);
    exec(&project, &["--frozen"], 0);
    assert_eq!(project.read(LOCK), whole);

    for (member, what) in [
        ("files", "the files of the MCP server `notes`"),
        ("tools", "the tools of the MCP server `notes`"),
    ] {
        let mut lock: Value = serde_json::from_str(&whole).unwrap();
        lock.as_object_mut().unwrap().remove(member).expect("it has it");
        project.write(LOCK, lock.to_string());
        let what =
            if member == "files" { format!("{what} as they are now") } else { what.to_owned() };
        refused(&project, &what);
        // Without it, they are pinned again.
        exec(&project, &[], 0);
        assert_eq!(project.read(LOCK), whole);
    }

    // A tool that is described differently, in a file that the user has not allowed either.
    project.write(
        "server.js",
        RUNNER.replace("name: \"add\",", "name: \"add\", description: \"Adds\","),
    );
    refused(&project, "the files of the MCP server `notes` as they are now");
    project.write("server.js", RUNNER);
    exec(&project, &["--frozen"], 0);
}

/// LK-01: whoever has the lock needs to add nothing to it, and the user's own record is made from it.
#[test]
fn a_frozen_run_of_somebody_else_uses_the_lock() {
    let first = project();
    exec(&first, &[], 0);
    let second = project();
    second.write(LOCK, first.read(LOCK));
    exec(&second, &["--frozen"], 0);
    assert_eq!(second.read(LOCK), first.read(LOCK));
    // With other tools in it, nobody is asked about what could not be stored.
    let third = project();
    let mut lock: Value = serde_json::from_str(&first.read(LOCK)).unwrap();
    let other = lock["files"]["notes"]["hashes"]["server.js"].clone();
    lock["tools"]["notes"]["pinned"]["add"] = other;
    third.write(LOCK, lock.to_string());
    refused(&third, "the tool `add` of the MCP server `notes` as the server lists it now");
}

/// LK-01: a capability that the lock does not have is refused by name, and neither asked about nor pinned. One that it has
/// runs for whoever has allowed it; a lock from somebody else grants nothing.
#[test]
fn a_frozen_run_uses_locked_capabilities_only() {
    const COUNT: &str = "/** Counts. */
        return (await mcp.filesystem.read_text_file({ path: args.path })).length";
    let author = author();
    published(&author, "files.length", COUNT);
    let project = || {
        let project = Project::of(&author).allow(&["*"]);
        project.write("a.txt", "abc");
        project.write("call.ts", "return await mcp.files.length({ path: 'a.txt' })");
        assert!(project.run(&["lock", "call.ts"]).status.success());
        project
    };
    let first = project();
    let refused = exec(&first, &["--frozen"], 2);
    assert!(
        refused.contains("does not have the capability `") && refused.contains(".files.length"),
        "{refused}"
    );
    assert!(!first.path(LOCK).exists());

    let yes = [(r"\[N\]o: ", "y")];
    let (shown, code) = on_terminal(&first, &["exec", "call.ts"], &yes);
    assert_eq!(code, 0, "{shown}");
    exec(&first, &["--frozen"], 0);
    let whole = first.read(LOCK);
    let second = project();
    second.write(LOCK, &whole);
    let asks = exec(&second, &["--frozen"], 3);
    assert!(asks.contains("which is new here"), "{asks}");
    let (shown, code) = on_terminal(&second, &["exec", "--frozen", "call.ts"], &yes);
    assert_eq!(code, 0, "{shown}");
    exec(&second, &["--frozen"], 0);
    assert_eq!(second.read(LOCK), whole);
}
