//! `roots` in `.pml.json`: further folders of the workspace.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::cli::undo::last_run;
use crate::support::cli::{Project, policy_for, text};
use crate::support::expect::{failure, success};

/// A project whose workspace has a second folder, `shared`, next to the project's.
struct Shared {
    project: Project,
    folder: PathBuf,
}

impl Shared {
    fn new(policy: Option<Value>) -> Self {
        let project = Project::offline();
        let folder = folder_beside(&project, "shared");
        std::fs::write(folder.join("a.txt"), "shared text").unwrap();
        let mut config = json!({
            "roots": ["../shared"],
            "permissions": { "allow": ["filesystem:*", "shell:exec", "git:*"] },
        });
        if let Some(policy) = policy {
            config["policy"] = policy;
        }
        Self { project: project.configure(&config), folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }
}

fn folder_beside(project: &Project, name: &str) -> PathBuf {
    let folder = project.workspace().canonicalize().unwrap().parent().unwrap().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn call(tool: &str, arguments: &Value) -> String {
    format!("return await mcp.{tool}({arguments})")
}

#[test]
fn tools_work_in_a_root_and_a_run_there_is_undone() {
    let shared = Shared::new(None);
    let exec = |tool: &str, arguments: Value| {
        let (envelope, _) = shared.project.exec(&call(tool, &arguments));
        success(&envelope).to_string()
    };
    let folders = exec("filesystem.list_allowed_directories", json!({}));
    assert!(folders.contains(shared.folder.to_str().unwrap()), "{folders}");
    let read = exec("filesystem.read_text_file", json!({ "path": shared.path("a.txt") }));
    assert!(read.contains("shared text"), "{read}");
    let code = [
        call("filesystem.create_directory", &json!({ "path": shared.path("new/deep") })),
        call(
            "filesystem.write_file",
            &json!({ "path": shared.path("new/deep/b.txt"), "content": "b" }),
        ),
        call(
            "filesystem.edit_file",
            &json!({ "path": shared.path("a.txt"), "edits": [{ "oldText": "shared", "newText": "changed" }] }),
        ),
        call(
            "filesystem.move_file",
            &json!({ "source": shared.path("a.txt"), "destination": "moved.txt" }),
        ),
    ];
    let code = code.map(|call| call.replace("return ", "")).join(";\n");
    success(&shared.project.exec(&code).0);
    let run = last_run(&shared.project);
    assert_eq!(std::fs::read_to_string(shared.path("new/deep/b.txt")).unwrap(), "b");
    assert_eq!(shared.project.read("moved.txt"), "changed text");
    let listed = exec("filesystem.list_directory", json!({ "path": shared.path("") }));
    assert!(listed.contains("[DIR] new") && !listed.contains("a.txt"), "{listed}");
    let found =
        exec("filesystem.search_files", json!({ "path": shared.path(""), "pattern": "**/*.txt" }));
    assert!(found.contains(&shared.path("new/deep/b.txt")), "{found}");

    let undone = shared.project.run(&["runs", "undo", &run, "--json"]);
    assert_eq!(undone.status.code(), Some(0), "{}", text(&undone.stdout));
    assert_eq!(std::fs::read_to_string(shared.path("a.txt")).unwrap(), "shared text");
    assert!(!shared.folder.join("new").exists() && !shared.project.path("moved.txt").exists());
}

#[test]
fn git_reads_a_repository_in_a_root() {
    let shared = Shared::new(None);
    let made = Command::new("git").arg("init").arg("-q").current_dir(&shared.folder).status();
    assert!(made.expect("git runs").success());
    let code = call("git.git_status", &json!({ "repo_path": shared.path("") }));
    let status = success(&shared.project.exec(&code).0).to_string();
    assert!(status.contains("a.txt"), "{status}");
}

/// A root is as closed as the project's folder.
#[test]
fn nothing_outside_a_root_is_reached() {
    let shared = Shared::new(None);
    let outside = folder_beside(&shared.project, "outside");
    std::fs::write(outside.join("secret.txt"), "outside text").unwrap();
    symlink(outside.join("secret.txt"), shared.folder.join("absolute")).unwrap();
    symlink("../outside/secret.txt", shared.folder.join("relative")).unwrap();
    symlink("../outside", shared.folder.join("folder")).unwrap();
    let parent = shared.folder.parent().unwrap().to_str().unwrap().to_owned();
    for path in [
        outside.join("secret.txt").to_str().unwrap().to_owned(),
        shared.path("../outside/secret.txt"),
        shared.path("absolute"),
        shared.path("relative"),
        shared.path("folder/secret.txt"),
        format!("{parent}/shared-not/x"),
        parent,
        "../shared/a.txt".to_owned(),
    ] {
        for (tool, more) in [
            ("filesystem.read_text_file", json!({})),
            ("filesystem.write_file", json!({ "content": "x" })),
            ("filesystem.list_directory", json!({})),
        ] {
            let mut arguments = more;
            arguments["path"] = json!(path);
            let (envelope, _) = shared.project.exec(&call(tool, &arguments));
            let code = envelope["error_code"].as_str().unwrap_or_default();
            assert_eq!(code, "PATH_OUTSIDE_WORKSPACE", "{tool} {path}: {envelope:#}");
        }
    }
    assert_eq!(std::fs::read_to_string(outside.join("secret.txt")).unwrap(), "outside text");
    // A link between the folders of the workspace stays in it.
    symlink(shared.folder.join("a.txt"), shared.project.path("link.txt")).unwrap();
    let code = call("filesystem.read_text_file", &json!({ "path": "link.txt" }));
    assert!(success(&shared.project.exec(&code).0).to_string().contains("shared text"));
}

#[test]
fn the_root_itself_is_not_moved_or_replaced() {
    let shared = Shared::new(None);
    for code in [
        call("filesystem.move_file", &json!({ "source": shared.path(""), "destination": "here" })),
        call("filesystem.write_file", &json!({ "path": shared.path(""), "content": "x" })),
    ] {
        let (envelope, _) = shared.project.exec(&code);
        assert_eq!(envelope["status"], "error", "{envelope:#}");
    }
    assert!(shared.folder.join("a.txt").exists());
}

#[test]
fn protected_places_and_hidden_files_of_a_root_need_approval() {
    let shared = Shared::new(None);
    std::fs::write(shared.folder.join(".env"), "SECRET=1").unwrap();
    std::fs::create_dir_all(shared.folder.join(".vscode")).unwrap();
    for code in [
        call("filesystem.read_text_file", &json!({ "path": shared.path(".env") })),
        call("filesystem.write_file", &json!({ "path": shared.path(".vscode/x"), "content": "x" })),
    ] {
        let (envelope, _) = shared.project.exec(&code);
        assert_eq!(envelope["status"], "approval_required", "{envelope:#}");
        assert!(envelope["context"]["protected"].is_array(), "{envelope:#}");
    }
}

/// A policy's relative patterns are about the project's folder; absolute ones, and those that begin with `**`, about roots.
#[test]
fn a_policy_has_absolute_patterns_for_roots() {
    let base = Shared::new(None);
    let everything = format!("{}/**", base.folder.display());
    let secret = format!("{}/secret/**", base.folder.display());
    std::fs::create_dir_all(base.folder.join("secret")).unwrap();
    std::fs::write(base.folder.join("secret/x.txt"), "x").unwrap();
    let config = |allow: &[&str], deny: &[&str]| {
        json!({
            "roots": ["../shared"],
            "permissions": { "allow": ["filesystem:*"] },
            "policy": { "filesystem": { "read": { "allow": allow, "deny": deny } } },
        })
    };
    let (mut project, folder) = (base.project, base.folder);
    for (allow, deny, open, closed) in [
        (vec!["src/**"], vec![], None, vec!["a.txt", "secret/x.txt"]),
        (vec![everything.as_str()], vec![secret.as_str()], Some("a.txt"), vec!["secret/x.txt"]),
        (vec!["**"], vec!["**/secret/**"], Some("a.txt"), vec!["secret/x.txt"]),
        (vec!["**"], vec!["secret/**"], Some("secret/x.txt"), vec![]),
    ] {
        project = project.configure(&config(&allow, &deny));
        let read = |name: &str| {
            let arguments = json!({ "path": folder.join(name) });
            project.exec(&call("filesystem.read_text_file", &arguments)).0
        };
        if let Some(name) = open {
            success(&read(name));
        }
        for name in closed {
            failure(&read(name), "POLICY_DENIED");
        }
    }
    let project = project.configure(&config(&["/elsewhere/**"], &[]));
    let output = project.run(&["policy", "check"]);
    let message = text(&output.stderr);
    assert!(
        !output.status.success() && message.contains("is in no folder of `roots`"),
        "{message}"
    );
}

#[test]
fn a_folder_that_cannot_be_a_root_stops_pml() {
    let project = Project::offline();
    let home = project.home().to_str().unwrap().to_owned();
    folder_beside(&project, "shared/inner");
    std::fs::create_dir_all(project.path("src")).unwrap();
    std::fs::write(project.path("file"), "").unwrap();
    // A program could point these links elsewhere before the next start.
    symlink("../shared", project.path("link")).unwrap();
    symlink(project.path("link"), folder_beside(&project, "links").join("back")).unwrap();
    symlink(folder_beside(&project, "other"), project.home().join("other")).unwrap();
    symlink("../links", folder_beside(&project, "shared").join("to-links")).unwrap();
    let mut project = project;
    for (roots, message) in [
        (json!(["../missing"]), "cannot be opened"),
        (json!(["file"]), "cannot be opened"),
        (json!(["/"]), "root of the file system"),
        (json!([home]), "home folder"),
        (json!(["/proc/self"]), "not on a disk"),
        (json!(["."]), "overlaps"),
        (json!([""]), "overlaps"),
        (json!(["src"]), "overlaps"),
        (json!(["../shared", "../shared/inner"]), "overlaps"),
        (json!(["~/missing"]), "cannot be opened"),
        (json!(["link"]), "leads through the workspace"),
        (json!(["src/../../shared"]), "leads through the workspace"),
        (json!(["../links/back"]), "leads through the workspace"),
        (json!(["../shared/to-links", "../shared"]), "leads through the workspace"),
    ] {
        project = project.configure(&json!({ "roots": roots }));
        let output = project.run_with(&["exec", "-"], b"return 1");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(message), "{roots}: {said}");
    }
    for roots in [json!(["~/other"]), json!(["./../other", "../shared"])] {
        project = project.configure(&json!({ "roots": roots }));
        let output = project.run_with(&["exec", "-"], b"return 1");
        assert_eq!(output.status.code(), Some(0), "{roots}: {}", text(&output.stderr));
        let found = text(&project.run(&["doctor"]).stdout);
        assert!(found.contains("root ") && found.contains("/other"), "{found}");
    }
}

/// A file that the user has not trusted adds no folder.
#[test]
fn roots_of_an_untrusted_file_are_ignored() {
    let shared = Shared::new(None);
    let changed = json!({ "roots": ["../shared", "../more"] });
    folder_beside(&shared.project, "more");
    std::fs::write(shared.project.path(".pml.json"), changed.to_string()).unwrap();
    let code = call("filesystem.read_text_file", &json!({ "path": shared.path("a.txt") }));
    let (envelope, _) = shared.project.exec(&code);
    failure(&envelope, "PATH_OUTSIDE_WORKSPACE");
}

/// A confined command can change the roots, and nothing else outside the project's folder.
#[test]
fn commands_are_confined_to_the_workspace_with_its_roots() {
    let shared = Shared::new(Some(policy_for(&["sh"])));
    let outside = folder_beside(&shared.project, "outside");
    let script = format!("echo x > b.txt; echo x > {}/c.txt; true", outside.display());
    let arguments = json!({ "command": "sh", "args": ["-c", script], "cwd": shared.path("") });
    success(&shared.project.exec(&call("shell.exec", &arguments)).0);
    assert!(shared.folder.join("b.txt").exists());
    assert!(!outside.join("c.txt").exists());
}

/// NX-02: what programs can change does not choose what runs.
#[test]
fn a_program_in_a_root_is_not_found_by_its_name() {
    let shared = Shared::new(Some(policy_for(&["tool"])));
    let tool = shared.folder.join("tool");
    std::fs::write(&tool, "#!/bin/sh\necho hijacked\n").unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let project = shared.project.set("PATH", &format!("{}:{path}", shared.folder.display()));
    let (envelope, _) = project.exec(&call("shell.exec", &json!({ "command": "tool" })));
    assert_eq!(envelope["status"], "error", "{envelope:#}");
}
