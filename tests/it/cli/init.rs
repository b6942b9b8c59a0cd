//! `pml init`: connects a project's agent and keeps the existing configuration.

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::terminal::on_terminal;

fn read(project: &Project, name: &str) -> Value {
    serde_json::from_str(&project.read(name)).unwrap()
}

/// `init` writes the three files, and the command in them starts a working `pml stdio`.
#[test]
fn init_writes_a_configuration_that_starts_pml() {
    let project = Project::new();
    let output = project.run(&["init", "--yes"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let entry = read(&project, ".mcp.json")["mcpServers"]["pml"].clone();
    let command = entry["command"].as_str().expect("a command");
    assert!(entry["args"].to_string().contains("stdio"), "{entry}");
    assert!(read(&project, ".pml.json").is_object());
    let ignored = project.read(".gitignore");
    assert!(ignored.lines().any(|line| line == ".pml/" || line == ".pml"), "{ignored}");
    assert!(!project.read(".mcp.json").contains("pml_"), "a key is never written into the project");
    // The named command is this very program, or found on the user's PATH as `pml`.
    assert!(command == "pml" || std::path::Path::new(command).is_file(), "{command}");
    assert_eq!(success(&project.stdio().execute("return 1")), 1);
}

/// Other entries of `.mcp.json` stay, and the old file is kept as a backup. A second run changes nothing.
#[test]
fn init_merges_into_mcp_json_and_keeps_a_backup() {
    let project = Project::new();
    let before =
        json!({ "mcpServers": { "other": { "command": "x", "args": [] } }, "more": 1 }).to_string();
    project.write(".mcp.json", &before);
    project.write(".gitignore", "node_modules");
    assert!(project.run(&["init", "--yes"]).status.success());
    let merged = read(&project, ".mcp.json");
    assert_eq!(merged["mcpServers"]["other"]["command"], "x");
    assert_eq!(merged["more"], 1);
    assert!(merged["mcpServers"]["pml"].is_object());
    assert_eq!(project.read(".mcp.json.backup"), before);
    assert!(project.read(".gitignore").starts_with("node_modules\n"));

    let files = [".mcp.json", ".pml.json", ".gitignore"].map(|name| project.read(name));
    assert!(project.run(&["init", "--yes"]).status.success());
    assert_eq!([".mcp.json", ".pml.json", ".gitignore"].map(|name| project.read(name)), files);
}

/// If there is nothing to change, `init` asks nothing and does not even rewrite the same bytes.
#[test]
fn init_without_changes_neither_asks_nor_writes() {
    let project = Project::new();
    project.write(".mcp.json", r#"{"mcpServers":{"pml":{"command":"pml","args":["stdio"]}}}"#);
    assert!(project.run(&["init", "--yes"]).status.success());
    assert!(project.read(".gitignore").lines().any(|line| line == ".env"));
    let modified = || {
        [".mcp.json", ".pml.json", ".gitignore"].map(|name| {
            let metadata = std::fs::metadata(project.path(name)).unwrap();
            (metadata.modified().unwrap(), std::os::unix::fs::MetadataExt::ino(&metadata))
        })
    };
    let before = modified();
    // Without `--yes` and without a terminal: there is no question.
    let again = project.run(&["init"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert!(text(&again.stdout).contains("nothing was changed"), "{}", text(&again.stdout));
    assert_eq!(modified(), before);
    assert!(!project.path(".mcp.json.backup").exists());
}

/// An invalid `.mcp.json` stays as it is.
#[test]
fn init_does_not_overwrite_an_invalid_mcp_json() {
    let project = Project::new();
    project.write(".mcp.json", "{ not json");
    let output = project.run(&["init", "--yes"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains(".mcp.json"), "{}", text(&output.stderr));
    assert_eq!(project.read(".mcp.json"), "{ not json");
}

/// `init` offers that the gateway is told the tools of the project's servers: to a person who has an API key, with "no" as
/// the default, and with what is sent.
#[test]
fn init_offers_tool_sync_and_takes_no_for_an_answer() {
    let servers = json!({ "mcpServers": {
        "notes": { "command": "node", "args": ["notes.js"] },
        "silent": { "command": "node", "args": ["silent.js"], "sync_tools": false },
    } });
    let (continues, tells) =
        ((r"Continue\? \[Y/n\]: ", "y"), r"Tell the gateway these tools\? \[y/N\]: ");
    let synced =
        |project: &Project| read(project, ".pml.json")["mcpServers"]["notes"]["sync_tools"].clone();
    let project = Project::new().configure(&servers);
    let before = project.read(".pml.json");
    let (shown, code) = on_terminal(&project, &["init"], &[continues, (tells, "")]);
    assert_eq!(code, 0, "{shown}");
    for words in [
        "Your own MCP servers here: `notes`.\n",
        "Sent, after a server has started: its namespace, a random id of this workspace, and of each tool the name",
        "Not sent: commands, arguments, variables, addresses, code, and arguments and results of calls.",
        "Only you find them. The gateway's operator has the database.",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert_eq!(project.read(".pml.json"), before);
    // A script is not asked, and nothing is said in its place.
    assert!(project.run(&["init", "--yes"]).status.success());
    assert_eq!(project.read(".pml.json"), before);

    let (shown, code) = on_terminal(&project, &["init"], &[(tells, "y")]);
    assert_eq!(code, 0, "{shown}");
    assert_eq!(synced(&project), true);
    assert_eq!(read(&project, ".pml.json")["mcpServers"]["silent"]["sync_tools"], false);
    let listed: Value = serde_json::from_slice(&project.run(&["list", "--json"]).stdout).unwrap();
    assert!(listed["configured"][0]["tool_sync"].is_object(), "it is trusted: {listed:#}");
    // It is not asked again.
    let (shown, _) = on_terminal(&project, &["init"], &[]);
    assert!(!shown.contains("Tell the gateway"), "{shown}");

    let offline = Project::offline().configure(&servers);
    let (shown, code) = on_terminal(&offline, &["init"], &[continues, (r"Enter for none\): ", "")]);
    assert!(code == 0 && !shown.contains("Tell the gateway"), "{shown}");
    assert!(offline.run(&["init", "--yes", "--sync-tools"]).status.success());
    assert_eq!(synced(&offline), true);

    // What came with a repository is not added to.
    let untrusted = Project::new();
    untrusted.write(".pml.json", servers.to_string());
    let refused = untrusted.run(&["init", "--yes", "--sync-tools"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("run `pml trust`"), "{}", text(&refused.stderr));
    assert_eq!(synced(&untrusted), Value::Null);
}
