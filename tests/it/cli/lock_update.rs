//! `pml lock --update`: newer packages of a server, after the difference was shown.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use super::locked_packages::{
    CALL, LOCK, approved, lock_of, parts, project, project_with, publish, shared,
};
use super::server_starts::{self, ADD, RUNNER, tenant};
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::registry::Registry;
use crate::support::terminal::on_terminal;

/// Runs `pml lock` with the arguments; returns what it printed on stdout and on stderr.
#[track_caller]
fn lock(project: &Project, arguments: &[&str], expected: i32) -> (String, String) {
    let Output { status, stdout, stderr } = project.run(&[&["lock"], arguments].concat());
    let (out, err) = (text(&stdout), text(&stderr));
    assert_eq!(status.code(), Some(expected), "{arguments:?}: {out}\n{err}");
    (out, err)
}

#[track_caller]
fn json_of(project: &Project, arguments: &[&str], expected: i32) -> Value {
    let (out, err) = lock(project, arguments, expected);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{err}"))
}

/// LK-04: the difference is shown, nothing is changed before a yes, and the next start has what was allowed.
#[test]
fn newer_packages_are_shown_and_locked_after_a_yes() {
    let registry = Registry::start();
    let project = project(&registry);
    publish(&registry, &project.home(), "1.0.0");
    success(&project.exec(CALL).0);
    let (out, _) = lock(&project, &["--update", "tool", "--dry-run"], 0);
    assert_eq!(out, "`tool` (npm:tool): nothing is newer than 1.0.0\n");

    publish(&registry, &project.home(), "1.1.0");
    let needs = json!({ "bin": "index.js", "version": "1.2.0", "dependencies": { "part": "^1.0.0", "more": "1.0.0" } });
    registry.publish(&project.home(), "more", &[], &json!({}), b"");
    registry.publish(&project.home(), "tool", &[("index.js", RUNNER)], &needs, b"");
    let before = project.read(LOCK);
    let words = "`tool` (npm:tool): was 1.0.0, now 1.2.0\n- new: `more` 1.0.0\n- `part`: was 1.0.0, now 1.1.0\n- `tool`: was 1.0.0, now 1.2.0\n";
    let (out, _) = lock(&project, &["--update", "tool", "--dry-run"], 1);
    assert_eq!(out, words);
    let (out, said) = lock(&project, &["--update", "tool"], 2);
    assert_eq!(out, "");
    assert!(said.contains("there is no terminal to ask on; nothing was changed"), "{said}");
    assert!(said.contains("`pml lock --update tool --yes` locks"), "{said}");
    let (shown, code) = on_terminal(&project, &["lock", "--update", "tool"], &[(r"\[y/N\]: ", "")]);
    assert_eq!(code, 2, "{shown}");
    assert!(shown.contains(words) && shown.contains("was not changed"), "{shown}");
    assert_eq!(project.read(LOCK), before);
    assert_eq!(parts(&project), ["1.0.0"]);

    let (shown, code) = on_terminal(&project, &["lock", "--update"], &[(r"\[y/N\]: ", "y")]);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains(words) && shown.contains("`.pml/mcp.lock` was written"), "{shown}");
    let lock_now = lock_of(&project);
    let part = &lock_now["packages"]["tool"]["npm"]["node_modules/part"];
    assert!(part.as_str().unwrap().starts_with("1.1.0 sha512-"), "{lock_now:#}");
    assert_eq!(lock_now["approvals"]["tool"]["through"], "terminal");
    assert_eq!(parts(&project), ["1.0.0"], "nothing is installed by that");
    // Nobody is asked again.
    success(&project.exec(CALL).0);
    assert_eq!(parts(&project), ["1.0.0", "1.1.0"]);
    lock(&project, &["--update", "--dry-run"], 0);
    // A project without a lock starts with what this one has.
    let answer = json_of(&project, &["--update", "--yes", "--json"], 0);
    assert_eq!(
        (&answer["newer"], &answer["written"]),
        (&json!(false), &json!(false)),
        "{answer:#}"
    );
}

/// What the command of the server and its packages do not allow is not taken, and `--yes` asks nobody.
#[test]
fn an_update_keeps_to_the_ranges() {
    let registry = Registry::start();
    let server = json!({ "command": "npx", "args": ["-y", "tool@^1.0.0"], "network": [] });
    let project = project_with(&registry, &server);
    publish(&registry, &project.home(), "1.0.0");
    // Not locked yet.
    let answer = json_of(&project, &["--update", "--dry-run", "--json"], 1);
    assert_eq!(answer["servers"][0]["from"], Value::Null, "{answer:#}");
    assert!(!project.path(LOCK).exists());
    success(&project.exec(CALL).0);
    for version in ["1.1.0", "2.0.0"] {
        publish(&registry, &project.home(), version);
    }
    let needs = json!({ "bin": "index.js", "version": "2.0.0" });
    registry.publish(&project.home(), "tool", &[("index.js", RUNNER)], &needs, b"");
    let answer = json_of(&project, &["--update", "--yes", "--json"], 0);
    let expected = json!({
        "file": LOCK, "newer": true, "written": true, "not_updated": [],
        "servers": [{
            "server": "tool", "request": "npm:tool@^1.0.0", "newer": true, "from": "1.0.0", "to": "1.0.0",
            "packages": 2,
            "changes": [{ "package": "part", "change": "version", "from": "1.0.0", "to": "1.1.0" }],
        }],
    });
    assert_eq!(answer, expected);
    success(&project.exec(CALL).0);
    assert_eq!(parts(&project), ["1.0.0", "1.1.0"]);
}

/// LK-01: a version whose bytes are others than when it was locked is refused, also with `--yes`, and so is everything else.
#[test]
fn a_replaced_version_is_never_locked() {
    let registry = Registry::start();
    let project = project(&registry);
    publish(&registry, &project.home(), "1.0.0");
    success(&project.exec(CALL).0);
    let before = project.read(LOCK);
    registry.publish(&project.home(), "part", &[("new.js", "")], &json!({}), b"");
    let newer =
        json!({ "bin": "index.js", "version": "1.1.0", "dependencies": { "part": "^1.0.0" } });
    registry.publish(&project.home(), "tool", &[("index.js", RUNNER)], &newer, b"");
    for flag in ["--dry-run", "--yes"] {
        let (out, said) = lock(&project, &["--update", "tool", flag], 2);
        assert!(out.contains("- `part` 1.0.0: other hash\n"), "{out}");
        assert!(said.contains("a version is not what it was when it was locked"), "{said}");
        assert!(said.contains("INTEGRITY_MISMATCH"), "{said}");
        assert_eq!(project.read(LOCK), before, "{flag}");
    }
    let answer = json_of(&project, &["--update", "--yes", "--json"], 2);
    assert_eq!(answer["error_code"], "INTEGRITY_MISMATCH", "{answer:#}");
    success(&project.exec(CALL).0);
}

/// A name that means no such server is refused, and a registry that cannot be asked changes nothing.
#[test]
fn an_update_that_fails_changes_nothing() {
    let registry = Registry::start();
    let project = project(&registry);
    publish(&registry, &project.home(), "1.0.0");
    success(&project.exec(CALL).0);
    publish(&registry, &project.home(), "1.1.0");
    let before = project.read(LOCK);
    let (_, said) = lock(&project, &["--update", "none", "--yes"], 2);
    assert!(said.contains("no server `none` may start here"), "{said}");
    let unreachable = project.set("npm_config_registry", "http://127.0.0.1:9");
    let (_, said) = lock(&unreachable, &["--update", "--yes"], 4);
    assert!(said.contains("nothing was changed: the newest packages of `tool` are not known: its registry cannot be reached"), "{said}");
    assert_eq!(unreachable.read(LOCK), before);
    // The two forms of the command are not mixed.
    for arguments in
        [&["a.ts", "--update", "tool"][..], &["a.ts", "--dry-run"], &["--update", "--check"], &[]]
    {
        lock(&unreachable, arguments, 2);
    }
    let (out, _) =
        lock(&unreachable.set("npm_config_registry", registry.npm()), &["--update", "--yes"], 0);
    assert!(out.contains("- `part`: was 1.0.0, now 1.1.0"), "{out}");
}

/// The servers of the registry that the user allowed are updated, too; others are named and left alone.
#[test]
fn a_registered_server_is_updated_if_it_was_allowed() {
    let tenant = tenant();
    server_starts::publish(&tenant, "1.0.0", &[], &[]);
    let registry = Registry::start();
    let first = server_starts::project(&tenant, &registry);
    let needs = json!({ "bin": "index.js", "dependencies": { "part": "1" } });
    registry.publish(&first.home(), "part", &[], &json!({}), b"");
    registry.publish(&first.home(), "notes", &[("index.js", RUNNER)], &needs, b"");
    success(&approved(&first, ADD).0);
    let copy = shared(&first);
    registry.publish(&first.home(), "part", &[], &json!({ "version": "1.5.0" }), b"");
    let (out, _) = lock(&first, &["--update", "jotter", "--yes"], 0);
    assert!(out.contains("- `part`: was 1.0.0, now 1.5.0\n"), "{out}");
    success(&first.stdio().execute(ADD));
    assert_eq!(parts(&first), ["1.0.0", "1.5.0"]);

    let second = Project::of(&tenant).allow(&["*"]).set("npm_config_registry", registry.npm());
    second.write(LOCK, copy.to_string());
    let before = second.read(LOCK);
    let (out, _) = lock(&second, &["--update", "--yes"], 0);
    assert!(out.contains("is not updated: no such server may start here"), "{out}");
    let (_, said) = lock(&second, &["--update", "jotter", "--yes"], 2);
    assert!(said.contains("has packages of `jotter`, but no such server may start here"), "{said}");
    assert_eq!(second.read(LOCK), before);
}

/// LK-04: a locked version outside the range of the command is refused by npm and pip, and an update locks another one.
#[test]
fn a_locked_version_outside_the_range_is_refused_and_updated() {
    let registry = Registry::start();
    let first = project(&registry);
    publish(&registry, &first.home(), "1.0.0");
    success(&first.exec(CALL).0);
    let newer =
        json!({ "bin": "index.js", "version": "2.0.0", "dependencies": { "part": "^1.0.0" } });
    registry.publish(&first.home(), "tool", &[("index.js", RUNNER)], &newer, b"");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/reaches_out.py");
    let wheeled = json!({ "command": "uvx", "args": ["wheeled"], "network": [] });
    let python = project_with(&registry, &wheeled);
    registry.publish_wheel(&python.home(), "wheeled", "1.0.0", &source);
    let write = "return await mcp.tool.write({ path: 'out.txt' })";
    success(&python.exec(write).0);
    registry.publish_wheel(&python.home(), "wheeled", "2.0.0", &source);
    for (command, range, of, code) in [
        ("npx", "tool@^2.0.0", "npm", CALL),
        ("npx", "tool@v2.0.0", "npm", CALL),
        ("npx", "tool@>1.0.0", "npm", CALL),
        ("uvx", "wheeled>=2", "pypi", write),
    ] {
        let mut lock_file = shared(if of == "npm" { &first } else { &python });
        lock_file["packages"]["tool"]["request"] = format!("{of}:{range}").into();
        let server = json!({ "command": command, "args": [range], "network": [] });
        let other = project_with(&registry, &server);
        other.write(LOCK, lock_file.to_string());
        let (answer, _) = approved(&other, code);
        let message = failure(&answer, "TOOL_UNAVAILABLE");
        let words = "has a version of it that the server's command does not allow; `pml lock --update` locks one";
        assert!(message.contains(words), "{range}: {message}");
        let (out, _) = lock(&other, &["--update", "tool", "--yes"], 0);
        assert!(out.contains(": was 1.0.0, now 2.0.0\n"), "{out}");
        success(&other.exec(code).0);
    }
    // What the range allows is installed, though it is not the newest.
    for (command, range, of, code) in
        [("npx", "tool@<=2.0.0", "npm", CALL), ("uvx", "wheeled>=1", "pypi", write)]
    {
        let mut lock_file = shared(if of == "npm" { &first } else { &python });
        lock_file["packages"]["tool"]["request"] = format!("{of}:{range}").into();
        let server = json!({ "command": command, "args": [range], "network": [] });
        let other = project_with(&registry, &server);
        other.write(LOCK, lock_file.to_string());
        success(&approved(&other, code).0);
        let version = lock_of(&other)["packages"]["tool"][of].to_string();
        assert!(version.contains("1.0.0 sha"), "{version}");
    }
}
