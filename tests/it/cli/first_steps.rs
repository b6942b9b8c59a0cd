//! Where `pml` works, and the first session with it.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::cli::{Project, finish, text};
use crate::support::expect::{failure, success};
use crate::support::serve::Serving;

/// Runs a program in a folder, with `PML_WORKSPACE` or without it.
#[track_caller]
fn exec_in(project: &Project, folder: &Path, workspace: Option<&Path>) -> Output {
    let mut command = project.command(&["exec", "-", "--json"]);
    command.env_remove("PML_WORKSPACE").current_dir(folder);
    if let Some(workspace) = workspace {
        command.env("PML_WORKSPACE", workspace);
    }
    let output = finish(command, b"return 1");
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// Returns whether a folder has been a workspace: the runs there are recorded in it.
fn was_workspace(folder: &Path) -> bool {
    folder.join(".pml/runs.db").exists()
}

/// Story 14.2: `PML_WORKSPACE` names the workspace; otherwise it is the nearest folder above with the mark of a project;
/// otherwise the current folder, with a warning that says what to set.
#[test]
fn the_workspace_is_named_found_or_the_current_folder() {
    let project = Project::offline();
    let folder = |name: &str| {
        let folder = project.home().parent().unwrap().join(name);
        std::fs::create_dir_all(folder.join("deep/deeper")).unwrap();
        folder
    };
    for mark in [".git", "deno.json", "package.json", ".pml.json"] {
        let root = folder(&format!("with-{}", mark.trim_start_matches('.')));
        std::fs::write(root.join(mark), "{}").unwrap();
        let output = exec_in(&project, &root.join("deep/deeper"), None);
        assert!(was_workspace(&root) && !was_workspace(&root.join("deep/deeper")), "{mark}");
        assert!(!text(&output.stderr).contains("PML_WORKSPACE"), "{}", text(&output.stderr));

        let named = folder(&format!("named-{}", mark.trim_start_matches('.')));
        exec_in(&project, &root.join("deep"), Some(&named));
        assert!(was_workspace(&named) && !was_workspace(&root.join("deep")), "{mark}");
    }
    let unmarked = folder("unmarked");
    let output = exec_in(&project, &unmarked, None);
    assert!(was_workspace(&unmarked));
    let warning = text(&output.stderr);
    assert!(warning.contains("warning") && warning.contains("set `PML_WORKSPACE`"), "{warning}");
}

/// Story 14.8: `pml init`, then `pml serve`, then a client that calls a tool of this machine and one of the gateway. What is
/// outside the workspace is refused, and the refusal is on record.
#[test]
fn a_first_session_uses_both_kinds_of_tools() {
    let project = Project::new();
    assert!(project.run(&["init", "--yes"]).status.success());
    let mut config: Value = serde_json::from_str(&project.read(".pml.json")).unwrap();
    config["permissions"]["allow"] = json!(["filesystem:*", "json:*"]);
    let project = project.configure(&config);
    project.write("a.txt", r#"{"n": 7}"#);
    let serving = Serving::start(&project);
    let code = "const text = await mcp.filesystem.read_text_file({ path: 'a.txt' });
        const data = await mcp.json.parse({ data: text });
        return data.n";
    assert_eq!(*success(&serving.execute(code)), 7);
    let outside =
        serving.execute("return await mcp.filesystem.read_text_file({ path: '../home/.bashrc' })");
    failure(&outside, "PATH_OUTSIDE_WORKSPACE");
    let shown = text(&project.run(&["runs", "show"]).stdout);
    assert!(
        shown.contains("filesystem:read_text_file") && shown.contains("../home/.bashrc"),
        "{shown}"
    );
}
