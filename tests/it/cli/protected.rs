//! Files that other programs run or trust: a program that may write files is asked about each of them.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::cli::{Project, finish, text};
use crate::support::expect::{failure, success};

/// Asserts that a human is asked about a protected place, and never for good.
#[track_caller]
fn asked_about<'a>(envelope: &'a Value, place: &str) -> &'a str {
    assert_eq!(envelope["status"], "approval_required", "{place}: {envelope:#}");
    assert_eq!(envelope["options"], json!(["continue", "abort"]), "{place}");
    assert_eq!(envelope["context"]["protected"][0]["path"], place, "{envelope:#}");
    let description = envelope["description"].as_str().unwrap();
    assert!(description.starts_with(&format!("Protected place `{place}`: ")), "{description}");
    description
}

fn write(path: &str) -> String {
    format!("return await mcp.filesystem.write_file({{ path: {path:?}, content: 'x' }})")
}

/// NX-03: no rule, however wide, lets a program write what an agent, editor, shell, Git, package manager or CI runs.
#[test]
fn protected_places_are_asked_about_whatever_is_allowed() {
    let project = Project::new().allow(&["*", "filesystem:*", "filesystem:write_file"]);
    let mut pml = project.stdio();
    for place in [
        ".bashrc",
        ".zshenv",
        ".profile",
        ".ssh/authorized_keys",
        ".config/autostart/x.desktop",
        ".vscode/settings.json",
        ".cursor/hooks.json",
        ".codex/config.toml",
        ".kiro/settings/mcp.json",
        ".roo/mcp.json",
        ".claude/settings.json",
        ".idea/workspace.xml",
        ".zed/settings.json",
        ".devcontainer/devcontainer.json",
        ".envrc",
        ".npmrc",
        ".yarnrc.yml",
        ".pnpmfile.cjs",
        ".husky/pre-commit",
        ".pre-commit-config.yaml",
        ".github/workflows/ci.yml",
        ".gitlab-ci.yml",
        "pip.conf",
        "sitecustomize.py",
        "AGENTS.md",
        "CLAUDE.md",
        ".cursorrules",
        ".gitattributes",
        ".gitmodules",
        ".lfsconfig",
        ".env",
        "node_modules/.bin/tsc",
        "sub/deep/.vscode/tasks.json",
    ] {
        let envelope = pml.execute(&write(place));
        asked_about(&envelope, place);
        failure(&pml.resume(&envelope, false, false), "APPROVAL_DENIED");
        assert!(!project.path(place).exists(), "{place}");
    }
    for place in [".git/config", ".git/hooks/pre-commit", ".pml.json", ".mcp.json", ".pml/runs.db"]
    {
        failure(&pml.execute(&write(place)), "POLICY_DENIED");
    }
    // What the user starts on purpose is source code like any other.
    for place in ["Makefile", "package.json", "conftest.py", ".env.example"] {
        success(&pml.execute(&write(place)));
    }
}

/// NX-03: "always" is taken as a yes to this one call, and the next one is asked about.
#[test]
fn always_does_not_settle_a_protected_place() {
    let project = Project::new();
    let mut pml = project.stdio();
    let first = pml.execute(&write("AGENTS.md"));
    let why = asked_about(&first, "AGENTS.md");
    assert!(why.contains("agents follow it"), "{why}");
    let done = pml.resume(&first, true, true);
    success(&done);
    assert!(done["warnings"][0].as_str().unwrap().contains("allowed once"), "{done:#}");
    assert_eq!(project.read("AGENTS.md"), "x");
    assert!(!project.path(".pml.json").exists(), "no rule is written");
    asked_about(&pml.execute(&write("AGENTS.md")), "AGENTS.md");
}

/// NX-03: Git's folder is known by what is in it, wherever `--separate-git-dir` or a nested repository puts it.
#[test]
fn git_folders_are_known_by_what_is_in_them() {
    let project = Project::new().allow(&["filesystem:*"]);
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments);
        let output = finish(project.wrap(command, &[]), b"");
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    std::fs::remove_dir(project.path(".git")).unwrap();
    git(&["init", "-q", "--separate-git-dir", "store"]);
    git(&["init", "-q", "sub"]);
    git(&["init", "-q", "--bare", "bare"]);
    let mut pml = project.stdio();
    for place in ["store/config", "store/hooks/post-checkout", "bare/config", "bare/hooks/update"] {
        asked_about(&pml.execute(&write(place)), place);
    }
    failure(&pml.execute(&write("sub/.git/config")), "POLICY_DENIED");
    // A program cannot make one either.
    success(&pml.execute(
        "await mcp.filesystem.create_directory({ path: 'made/objects' });
         await mcp.filesystem.create_directory({ path: 'made/refs' });
         return await mcp.filesystem.write_file({ path: 'made/config', content: '[core]' })",
    ));
    asked_about(&pml.execute(&write("made/HEAD")), "made/HEAD");
}

/// NX-03: the home folder is a workspace only if somebody names it, and PML's own records stay out of reach in it.
#[test]
fn the_home_folder_is_a_workspace_only_by_name() {
    let project = Project::new();
    let home = project.home();
    std::fs::create_dir_all(home.join(".git")).unwrap();
    let start = |folder: &Path, arguments: &[&str]| {
        let mut command = project.command(arguments);
        command.env_remove("PML_WORKSPACE").current_dir(folder);
        finish(command, write("x.txt").as_bytes())
    };
    std::fs::create_dir_all(home.join("deep")).unwrap();
    for folder in [home.clone(), home.join("deep"), home.parent().unwrap().to_owned()] {
        for arguments in [&["exec", "-", "--json"][..], &["init", "--yes"]] {
            let refused = start(&folder, arguments);
            let told = format!("{}{}", text(&refused.stdout), text(&refused.stderr));
            assert!(!refused.status.success(), "{told}");
            assert!(told.contains("home folder"), "{told}");
            assert!(!home.join(".pml.json").exists() && !home.join(".mcp.json").exists());
        }
    }
    let named = project.set("PML_WORKSPACE", home.to_str().unwrap());
    std::fs::write(
        home.join(".pml.json"),
        json!({ "permissions": { "allow": ["*"] } }).to_string(),
    )
    .unwrap();
    assert!(named.run(&["trust", "--yes"]).status.success());
    let record = home.join(".local/state/pml/trusted");
    let before = std::fs::read(&record).expect("trust was recorded");
    let mut pml = named.stdio();
    for path in [".local/state/pml/trusted", ".config/pml/credentials"] {
        failure(&pml.execute(&write(path)), "POLICY_DENIED");
        let read = format!("return await mcp.filesystem.read_file({{ path: {path:?} }})");
        failure(&pml.execute(&read), "POLICY_DENIED");
    }
    for path in [".local/state/pml", ".local/state", ".local", ".config"] {
        let away = format!(
            "return await mcp.filesystem.move_file({{ source: {path:?}, destination: 'away' }})"
        );
        failure(&pml.execute(&away), "POLICY_DENIED");
    }
    assert_eq!(std::fs::read(&record).unwrap(), before);
    success(&pml.execute(&write("x.txt")));
    asked_about(&pml.execute(&write(".ssh/authorized_keys")), ".ssh/authorized_keys");
}
