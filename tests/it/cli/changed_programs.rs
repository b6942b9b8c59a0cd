//! LM-05: a local server whose program changed after it was allowed does not start before a person has approved it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::server_starts::{self, ADD, RUNNER, publish, tenant};
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, question, success};
use crate::support::registry::Registry;
use crate::support::terminal::{approve, on_terminal};

const CALL: &str = "return (await mcp.notes.add({})).names.length > 0";

/// Returns the source of the server after a change, which leaves a file when it runs.
fn changed() -> String {
    RUNNER.replacen('\n', "\nrequire('fs').writeFileSync('ran.txt', '');\n", 1)
}

fn write_program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Creates a project with a server in its `.pml.json`, started by this command.
fn project_with(command: &[&str]) -> Project {
    let project = Project::offline().configure(&json!({
        "permissions": { "allow": ["notes:*", "filesystem:*"] },
        "mcpServers": { "notes": { "command": command[0], "args": command[1..] } },
    }));
    write_program(&project.path("server/notes.js"), RUNNER);
    project
}

/// Asserts that a run asks whether a changed program may start, and that it has not; returns the question.
#[track_caller]
fn description<'a>(project: &Project, asked: &'a Value) -> &'a str {
    assert_eq!(question(asked)["approval_type"], "dependency", "{asked:#}");
    assert_eq!(asked["context"]["dangerous"], true, "{asked:#}");
    assert!(!project.path("ran.txt").exists(), "it ran: {asked:#}");
    asked["description"].as_str().unwrap()
}

/// A script of the workspace that changed between two starts is shown with its hashes, and does not run before a person
/// has approved it; afterwards it is pinned as it is then.
#[test]
fn a_changed_script_does_not_start() {
    let project = project_with(&["node", "server/notes.js", "--verbose"]);
    success(&project.exec(CALL).0);
    success(&project.exec(CALL).0);
    let lock: Value = serde_json::from_str(&project.read(".pml/mcp.lock")).unwrap();
    let hashes = lock["files"]["notes"]["hashes"].as_object().unwrap();
    // The lock is shared, so it has what is in the workspace, but not where Node.js is on this machine.
    assert_eq!(hashes.keys().collect::<Vec<_>>(), ["server/notes.js"], "{lock:#}");

    write_program(&project.path("server/notes.js"), &changed());
    let output = project.run_with(&["exec", "-"], CALL.as_bytes());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    for words in [
        "`notes` of `.pml.json`, whose program CHANGED since you allowed it",
        "`server/notes.js`: was sha256-",
        "\"node\" \"server/notes.js\" \"--verbose\"",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // Nor to list its tools.
    std::fs::remove_dir_all(project.home().join(".local/state/pml/known-tools")).ok();
    project.run(&["search", "notes:*"]);
    project.run(&["types"]);
    assert!(!project.path("ran.txt").exists());

    let mut pml = project.stdio();
    let asked = pml.execute(CALL);
    description(&project, &asked);
    let denied = pml.resume(&asked, false, false);
    assert!(failure(&denied, "APPROVAL_DENIED").contains("`notes:add`"), "{denied:#}");
    let asked = pml.execute(CALL);
    description(&project, &asked);
    // A model cannot approve it.
    let again = pml.resume(&asked, true, false);
    description(&project, &again);
    approve(&project, &again, false);
    assert_eq!(*success(&pml.resume(&again, true, false)), true);
    assert!(project.path("ran.txt").exists());
    success(&project.exec(CALL).0);

    std::fs::remove_file(project.path("ran.txt")).unwrap();
    write_program(&project.path("server/notes.js"), RUNNER);
    project.write("call.ts", CALL);
    let (shown, code) = on_terminal(&project, &["exec", "call.ts"], &[(r"\[N\]o: ", "n")]);
    assert!(code == 3 && shown.contains("CHANGED since you allowed it"), "{shown}");
    let (shown, code) = on_terminal(&project, &["exec", "call.ts"], &[(r"\[N\]o: ", "y")]);
    assert!(code == 0 && shown.trim_end().ends_with("true"), "{shown}");
}

/// A program may write files of the workspace, but not let a server run them unseen.
#[test]
fn a_program_cannot_rewrite_a_server() {
    let project = project_with(&["node", "server/notes.js"]);
    success(&project.exec(CALL).0);
    let code = format!(
        "await mcp.filesystem.write_file({{ path: 'server/notes.js', content: {:?} }}); {CALL}",
        changed()
    );
    let mut pml = project.stdio();
    let asked = pml.execute(&code);
    assert!(description(&project, &asked).contains("`server/notes.js`: was"), "{asked:#}");
    failure(&pml.resume(&asked, false, false), "APPROVAL_DENIED");
}

/// While the question waits, the file changes once more: what was shown is not what would run.
#[test]
fn an_approval_covers_the_bytes_that_were_shown() {
    let project = project_with(&["node", "server/notes.js"]);
    success(&project.exec(CALL).0);
    write_program(&project.path("server/notes.js"), &format!("{RUNNER}// harmless\n"));
    let mut pml = project.stdio();
    let asked = pml.execute(CALL);
    description(&project, &asked);
    write_program(&project.path("server/notes.js"), &changed());
    approve(&project, &asked, false);
    failure(&pml.resume(&asked, true, false), "INTEGRITY_MISMATCH");
    assert!(!project.path("ran.txt").exists());
}

/// The program itself, its interpreter and a program that replaces it on the `PATH` are compared as well.
#[test]
fn every_file_that_runs_is_compared() {
    let real = |name: &str| {
        let path = std::env::var_os("PATH").unwrap();
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    };
    let node = real("node").unwrap();
    let wrapper = |first: &str| format!("{first}\nexec {} \"$@\"\n", node.display());
    for case in ["program", "interpreter", "path"] {
        let project = project_with(&["run-notes", "server/notes.js"]);
        let (one, two) = (project.home().join("one"), project.home().join("two"));
        let shell = one.join("shell");
        write_program(&one.join("run-notes"), &wrapper("#!/usr/bin/env shell"));
        std::os::unix::fs::symlink("/bin/sh", &shell).unwrap();
        let path = [&two, &one, &PathBuf::from("/usr/bin"), &PathBuf::from("/bin")];
        let path = std::env::join_paths(path).unwrap().into_string().unwrap();
        let project = project.set("PATH", &path);
        success(&project.exec(CALL).0);
        match case {
            "program" => {
                write_program(
                    &one.join("run-notes"),
                    &wrapper("#!/usr/bin/env shell\ntouch ran.txt"),
                );
            }
            "interpreter" => {
                std::fs::remove_file(&shell).unwrap();
                write_program(&shell, "#!/bin/sh\ntouch ran.txt\nexec /bin/sh \"$@\"\n");
            }
            _ => write_program(&two.join("run-notes"), &wrapper("#!/bin/sh\ntouch ran.txt")),
        }
        let asked = project.stdio().execute(CALL);
        let shown = description(&project, &asked);
        let file = match case {
            "program" => format!("`{}`: was", one.join("run-notes").display()),
            "interpreter" => format!("`{}`: was", shell.display()),
            _ => format!("new: `{}`", two.join("run-notes").display()),
        };
        assert!(shown.contains(&file), "{file}: {shown}");
    }
}

/// The lock is in the workspace, where programs can write. Deleting or editing it approves nothing.
#[test]
fn the_lock_approves_no_program() {
    let project = project_with(&["node", "server/notes.js"]);
    success(&project.exec(CALL).0);
    let lock = project.read(".pml/mcp.lock");
    std::fs::remove_file(project.path(".pml/mcp.lock")).unwrap();
    success(&project.exec(CALL).0);

    // Somebody else's lock has another hash.
    let other = project_with(&["node", "server/notes.js"]);
    write_program(&other.path("server/notes.js"), &changed());
    success(&other.exec(CALL).0);
    project.write(".pml/mcp.lock", other.read(".pml/mcp.lock"));
    let asked = project.stdio().execute(CALL);
    assert!(
        description(&project, &asked).contains("`.pml/mcp.lock` has other hashes"),
        "{asked:#}"
    );
    // It has that of the changed program, and this user has not seen it.
    write_program(&project.path("server/notes.js"), &changed());
    description(&project, &project.stdio().execute(CALL));
    std::fs::remove_file(project.path(".pml/mcp.lock")).unwrap();
    description(&project, &project.stdio().execute(CALL));

    // The person can start over.
    project.write(".pml/mcp.lock", &lock);
    assert!(project.run(&["remove", "notes"]).status.success());
    success(&project.exec(CALL).0);
}

/// A package is compared with what was installed before anything of it runs, and can be installed again.
#[test]
fn a_changed_package_does_not_start() {
    let registry = Registry::start();
    let servers = json!({ "permissions": { "allow": ["*"] },
        "mcpServers": { "notes": { "command": "npx", "args": ["-y", "notes"], "network": [] } } });
    let project = Project::offline().configure(&servers);
    let files = [("index.js", RUNNER), ("more.js", "")];
    registry.publish(&project.home(), "notes", &files, &json!({ "bin": "index.js" }), b"");
    let project = project.set("npm_config_registry", registry.npm());
    success(&project.exec(CALL).0);
    let packages = project.home().join(".local/state/pml/packages");
    let installed = || {
        let mut entries = std::fs::read_dir(&packages).unwrap().flatten().map(|entry| entry.path());
        entries.find(|path| path.is_dir()).unwrap()
    };
    let folder = installed();
    let index = folder.join("node_modules/notes/index.js");
    let changed = RUNNER.replacen(
        '\n',
        &format!("\nrequire('fs').writeFileSync({:?}, '');\n", project.path("ran.txt")),
        1,
    );
    std::fs::write(&index, changed).unwrap();
    let (envelope, _) = project.exec(CALL);
    let message = failure(&envelope, "TOOL_UNAVAILABLE");
    for words in [
        "`notes` is not as it was installed: `node_modules/notes/index.js` was changed",
        &format!("to install it again, delete `{}`", folder.display()),
    ] {
        assert!(message.contains(words), "{words}: {message}");
    }
    assert!(!project.path("ran.txt").exists());
    std::fs::write(&index, RUNNER).unwrap();
    success(&project.exec(CALL).0);
    std::fs::write(folder.join("node_modules/notes/new.js"), "").unwrap();
    let (envelope, _) = project.exec(CALL);
    assert!(
        failure(&envelope, "TOOL_UNAVAILABLE").contains("notes/new.js` was added"),
        "{envelope:#}"
    );

    std::fs::remove_dir_all(&folder).unwrap();
    success(&project.exec(CALL).0);
    assert_eq!(installed(), folder);
}

/// A server of the registry that is a program of this machine is approved with the hash of that.
#[test]
fn a_server_of_the_registry_is_pinned_to_its_files() {
    let tenant = tenant();
    publish(&tenant, "1.0.0", &[], &[]);
    let registry = Registry::start();
    let project = server_starts::project(&tenant, &registry);
    let mut pml = project.stdio();
    let asked = pml.execute(ADD);
    approve(&project, &asked, false);
    success(&pml.resume(&asked, true, false));
    let mut lock: Value = serde_json::from_str(&project.read(".pml/mcp.lock")).unwrap();
    let server = lock["servers"].as_object_mut().unwrap().values_mut().next().unwrap();
    let files = server["grants"]["files"].as_object().unwrap();
    assert!(files.keys().any(|file| file.ends_with("/node")), "{files:#?}");
    success(&project.stdio().execute(ADD));

    // The same with a `node` of the user that is replaced.
    let bin = project.home().join("bin");
    let node = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|folder| folder.join("node"))
        .find(|file| file.is_file())
        .unwrap();
    write_program(&bin.join("node"), &format!("#!/bin/sh\nexec {} \"$@\"\n", node.display()));
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let project = project.set("PATH", &path);
    let asked = project.stdio().execute(ADD);
    let shown = question(&asked)["description"].as_str().unwrap();
    assert!(shown.contains("CHANGED") && shown.contains("bin/node`"), "{shown}");
}
