//! Protected places: files that other programs run or trust. A write needs approval for each, whatever the rules allow.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::cli::{Project, finish, text};
use crate::support::expect::{failure, success};
use crate::support::terminal::approve;

/// Asserts that the user is asked about a protected place, without the option "always".
#[track_caller]
fn asked_about<'a>(envelope: &'a Value, place: &str) -> &'a str {
    assert_eq!(envelope["status"], "approval_required", "{place}: {envelope:#}");
    // The agent cannot approve it.
    assert_eq!(envelope["options"], json!(["abort"]), "{place}");
    assert_eq!(envelope["context"]["protected"][0]["path"], place, "{envelope:#}");
    let description = envelope["description"].as_str().unwrap();
    assert!(description.starts_with(&format!("Protected place `{place}`: ")), "{description}");
    description
}

fn write(path: &str) -> String {
    format!("return await mcp.filesystem.write_file({{ path: {path:?}, content: 'x' }})")
}

/// NX-03: no rule, however broad, lets a program write files that an agent, editor, shell, Git, package manager or CI
/// runs.
#[test]
fn protected_places_need_approval_whatever_the_rules_allow() {
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
    // Files that run only when the user starts them are ordinary source code.
    for place in ["Makefile", "package.json", "conftest.py"] {
        success(&pml.execute(&write(place)));
    }
    // Hidden files are protected as long as no policy allows them.
    for place in [".gitignore", ".env.example", "src/.cache/x"] {
        let asked = pml.execute(&write(place));
        let why = asked_about(&asked, place);
        assert!(why.contains("it is hidden, and no `policy` allows that"), "{why}");
    }
}

/// NX-03: an approval covers this one call; the next one is asked about.
#[test]
fn an_approval_covers_one_write_to_a_protected_place() {
    let project = Project::new();
    let mut pml = project.stdio();
    let first = pml.execute(&write("AGENTS.md"));
    let why = asked_about(&first, "AGENTS.md");
    assert!(why.contains("agents follow it"), "{why}");
    approve(&project, &first, true);
    success(&pml.resume(&first, true, true));
    assert_eq!(project.read("AGENTS.md"), "x");
    assert!(!project.path(".pml.json").exists(), "a rule was written");
    asked_about(&pml.execute(&write("AGENTS.md")), "AGENTS.md");
}

/// NX-03: Git folders are recognised by their content, wherever `--separate-git-dir` or a nested repository puts them.
#[test]
fn git_folders_are_recognised_by_their_content() {
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
    // A program cannot create one either: `HEAD` would complete it.
    success(&pml.execute(
        "await mcp.filesystem.create_directory({ path: 'made/objects' });
         await mcp.filesystem.create_directory({ path: 'made/refs' });
         return await mcp.filesystem.write_file({ path: 'made/config', content: '[core]' })",
    ));
    asked_about(&pml.execute(&write("made/HEAD")), "made/HEAD");
}

/// NX-03: the home folder is used as workspace only if it is named explicitly. PML's own records in it stay
/// inaccessible.
#[test]
fn the_home_folder_is_no_workspace_unless_named_explicitly() {
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
            let printed = format!("{}{}", text(&refused.stdout), text(&refused.stderr));
            assert!(!refused.status.success(), "{printed}");
            assert!(printed.contains("home folder"), "{printed}");
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
