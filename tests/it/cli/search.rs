//! `pml search`: what a person finds.

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::server::Server;

fn search(project: &Project, arguments: &[&str]) -> String {
    let output = project.run(&[&["search"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Words, patterns and names find the tools of this machine without a gateway; the answer says what is missing.
#[test]
fn tools_of_this_machine_are_found_offline() {
    let project = Project::offline();
    project.write("fixture.py", include_str!("../../fixtures/reaches_out.py"));
    let project = project.configure(&json!({
        "permissions": { "deny": ["filesystem:move_file"] },
        "mcpServers": { "reach": { "command": "python3", "args": ["fixture.py"] } },
    }));
    let found = search(&project, &["read", "a", "text", "file"]);
    let first = found.lines().take(2).collect::<Vec<_>>().join("\n");
    assert!(
        first.starts_with("filesystem:read_text_file (on this machine)\n  mcp.filesystem.read_text_file({ path: string"),
        "{found}"
    );
    assert!(found.contains("their servers have not run yet: `reach`"), "{found}");
    assert!(found.contains("Missing: the gateway's tools: "), "{found}");

    let found = search(&project, &["filesystem:*", "--json", "--limit", "50"]);
    let found: Value = serde_json::from_str(&found).unwrap();
    let ids: Vec<&str> = found["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["id"].as_str().unwrap())
        .collect();
    assert!(
        ids.contains(&"filesystem:write_file")
            && ids.iter().all(|id| id.starts_with("filesystem:"))
    );
    assert!(!ids.contains(&"filesystem:move_file"), "a denied tool is listed");

    let found = search(&project, &["filesystem:read_txt_file"]);
    assert!(
        found.starts_with("No tool was found.\nDid you mean `filesystem:read_text_file`"),
        "{found}"
    );
    let invalid = project.run(&["search", "x", "--limit", "51"]);
    assert_eq!(invalid.status.code(), Some(2));
    assert_eq!(project.run(&["search"]).status.code(), Some(2));
}

/// Tools of the gateway are found with those of this machine.
#[test]
fn tools_of_the_gateway_are_found() {
    let project = Project::of(&Server::shared().tenant());
    let found = search(&project, &["parse", "a", "JSON", "text"]);
    assert!(found.contains("json:parse (on the gateway)\n"), "{found}");
    assert!(!found.contains("Missing:"), "{found}");
}
