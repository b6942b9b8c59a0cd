//! `pml list` and `pml remove`: what may start in a project, and how that is taken back.

use serde_json::{Value, json};

use super::server_starts::{ADD, project, publish, tenant};
use crate::support::cli::{Project, text};
use crate::support::expect::{question, success};
use crate::support::registry::Registry;
use crate::support::terminal::approve;

fn run(project: &Project, arguments: &[&str]) -> (i32, String, String) {
    let output = project.run(arguments);
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// NX-01: a removed server asks again, also if somebody puts its entry back. Its files are deleted only on request.
#[test]
fn a_removed_server_asks_again() {
    let (tenant, registry) = (tenant(), Registry::start());
    publish(&tenant, "1.0.0", &["NOTES_TOKEN"], &["api.notes.test"]);
    let project = project(&tenant, &registry).set("NOTES_TOKEN", "canary-f6");
    assert!(run(&project, &["list"]).1.starts_with("No server is defined"));
    let mut pml = project.stdio();
    let pending = pml.execute(ADD);
    approve(&project, &pending, false);
    success(&pml.resume(&pending, true, false));
    drop(pml);

    let (code, listed, _) = run(&project, &["list"]);
    assert_eq!(code, 0);
    assert!(listed.contains("Servers of the registry that may start here:"), "{listed}");
    assert!(
        listed.contains("npx -y notes@1.0.0\n    sealed; connects to api.notes.test\n"),
        "{listed}"
    );
    assert!(listed.contains("Z, through: terminal\n"), "{listed}");
    let listed: Value = serde_json::from_str(&run(&project, &["list", "--json"]).1).unwrap();
    let server = &listed["allowed"][0];
    assert_eq!(server["counts"], true, "{listed:#}");
    assert_eq!(server["variables"], json!({ "NOTES_TOKEN": "environment" }), "{listed:#}");
    // Approved by `pml approve`, on a terminal.
    let approved = &server["approved"];
    assert_eq!(approved["through"], "terminal", "{listed:#}");
    assert!(approved["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{listed:#}");
    assert!(!listed.to_string().contains("canary"), "{listed:#}");
    let name = server["name"].as_str().unwrap().to_owned();

    let (code, _, refused) = run(&project, &["remove", "none"]);
    assert!(code == 1 && refused.contains("`pml list` shows what it has"), "{refused}");
    let homes = project.home().join(".local/state/pml/server-homes");
    assert_eq!(std::fs::read_dir(&homes).unwrap().count(), 1);
    let lock = project.read(".pml/mcp.lock");
    let (code, removed, _) = run(&project, &["remove", "jotter"]);
    assert!(code == 0 && removed.contains(&format!("Removed {name}")), "{removed}");
    assert_eq!(std::fs::read_dir(&homes).unwrap().count(), 1);
    question(&project.stdio().execute(ADD));

    project.write(".pml/mcp.lock", &lock);
    let listed = run(&project, &["list"]).1;
    assert!(listed.contains("`pml` asks again before it starts"), "{listed}");
    // The lock alone, which a repository can supply, vouches for nobody.
    assert!(!listed.contains("allowed"), "{listed}");
    question(&project.stdio().execute(ADD));
    let (code, removed, _) = run(&project, &["remove", &name, "--clean"]);
    assert!(code == 0 && removed.contains("Deleted the files"), "{removed}");
    assert_eq!(std::fs::read_dir(&homes).unwrap().count(), 0);
}

/// The servers of `.pml.json` are listed with what they may reach; they are removed by editing the file.
#[test]
fn servers_of_the_project_are_listed() {
    let project = Project::offline().configure(&json!({ "mcpServers": {
        "one": { "command": "npx", "args": ["-y", "notes@1.0.0"] },
        "two": { "command": "python3", "args": ["a b.py"], "sealed": false },
        "three": { "command": "python3", "network": "all" },
        "four": { "url": "https://docs.example/mcp" },
    } }));
    let (code, listed, _) = run(&project, &["list"]);
    assert_eq!(code, 0);
    for line in [
        "  one\n    npx -y notes@1.0.0\n    sealed; connects to nothing; installed at the first call\n",
        "  two\n    python3 \"a b.py\"\n    not sealed: it runs with your rights\n",
        "  three\n    python3\n    sealed; connects to everything\n",
        "  four\n    https://docs.example\n",
    ] {
        assert!(listed.contains(line), "{line}{listed}");
    }
    let (code, _, refused) = run(&project, &["remove", "one"]);
    assert!(code == 1 && refused.contains("Delete its entry there"), "{refused}");
    let (code, cleaned, _) = run(&project, &["remove", "one", "--clean"]);
    assert!(code == 0 && cleaned.contains("It has stored no files"), "{cleaned}");
}
