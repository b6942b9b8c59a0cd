//! Servers of the registry without the gateway: what started here once starts again.

use std::path::PathBuf;

use serde_json::json;

use super::server_starts::{ADD, project, publish, tenant};
use crate::identity::keys::call;
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, question, success};
use crate::support::registry::Registry;
use crate::support::server::Tenant;
use crate::support::terminal::approve;

/// An address that nothing listens on.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Creates a project in which a server of the registry was started, and whose gateway and registry of npm are gone.
fn started_before(tenant: &Tenant) -> Project {
    let registry = Registry::start();
    publish(tenant, "1.0.0", &[], &[]);
    let project = project(tenant, &registry);
    let mut pml = project.stdio();
    let pending = pml.execute(ADD);
    approve(&project, &pending, false);
    success(&pml.resume(&pending, true, false));
    gone(project)
}

fn gone(project: Project) -> Project {
    project.set("PML_CLOUD_URL", NOWHERE).set("npm_config_registry", NOWHERE)
}

/// Story 14.4, AC7-8: a server that was allowed and installed here starts again when the gateway and the registry of npm
/// are unreachable, with an API key or without one, also within a capability.
#[test]
fn a_server_that_started_here_starts_again() {
    let tenant = tenant();
    let project = started_before(&tenant);
    let (envelope, code) = project.exec(ADD);
    assert_eq!(code, 0, "{envelope:#}");
    assert_eq!(success(&envelope)["notes"].as_str().unwrap().rsplit('/').next(), Some("notes"));
    let plan = text(&project.run_with(&["plan", "--offline", "-"], ADD.as_bytes()).stdout);
    assert!(plan.contains("here: it ran here before, and there is no gateway to ask"), "{plan}");
    let project = project.set("PML_API_KEY", "");
    success(&project.stdio().execute(ADD));
    success(&project.stdio_stateless().execute(ADD));
    // What was not allowed here is said to be missing.
    let other = project.stdio().execute("return await mcp.jotter.remove({})");
    failure(&other, "TOOL_NOT_FOUND");
    let unknown = project.stdio().execute("return await mcp.other.add({})");
    assert_eq!(unknown["status"], "error", "{unknown}");
}

/// The rules apply as with the gateway, also those for the full name.
#[test]
fn rules_apply_without_the_gateway() {
    let tenant = tenant();
    let project = started_before(&tenant);
    let scope = crate::support::upstream::scope_of(&tenant);
    for denied in ["jotter:add", "jotter:*", &format!("{scope}.jotter:add"), "*"] {
        let config = json!({ "permissions": { "allow": ["filesystem:*"], "deny": [denied] } });
        project.write(".pml.json", config.to_string());
        assert!(project.run(&["trust", "--yes"]).status.success());
        failure(&project.stdio().execute(ADD), "PERMISSION_DENIED");
    }
    project.write(".pml.json", json!({ "permissions": {} }).to_string());
    assert!(project.run(&["trust", "--yes"]).status.success());
    question(&project.stdio().execute(ADD));
}

/// Only what this user allowed counts: neither an entry that was changed on disk nor a removed approval starts anything.
#[test]
fn changed_entries_and_removed_approvals_start_nothing() {
    let tenant = tenant();
    let project = started_before(&tenant);
    let folder = project.home().join(".local/state/pml/servers");
    let files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let before = std::fs::read_to_string(file).unwrap();
    assert!(before.contains("notes@1.0.0"));
    for changed in [before.replace("notes@1.0.0", "evil@1.0.0"), String::new(), "{}".to_owned()] {
        std::fs::write(file, changed).unwrap();
        let refused = project.stdio().execute(ADD);
        assert_eq!(refused["status"], "error", "{refused}");
    }
    std::fs::write(file, &before).unwrap();
    success(&project.stdio().execute(ADD));
    assert!(project.run(&["remove", "jotter"]).status.success());
    let refused = project.stdio().execute(ADD);
    assert_eq!(refused["status"], "error", "{refused}");
}

/// A capability that calls a server of the registry runs without the gateway, and the rules apply to the server's full
/// name in it.
#[test]
fn a_capability_calls_its_server_without_the_gateway() {
    let tenant = tenant();
    let registry = Registry::start();
    publish(&tenant, "1.0.0", &[], &[]);
    let project = project(&tenant, &registry);
    let body = json!({ "name": "notes.twice", "description": "Adds twice.", "code": "await mcp.jotter.add({}); return (await mcp.jotter.add({})).notes" });
    let url = format!("{}/api/v1/capabilities", tenant.url);
    let reply = call(&tenant.key, "POST", &url, Some(&body));
    assert!(reply.status < 300, "{}", text(&reply.body));
    let program = "return await mcp.notes.twice({})";
    let mut pml = project.stdio();
    let mut answer = pml.execute(program);
    while answer["status"] == "approval_required" {
        approve(&project, &answer, false);
        answer = pml.resume(&answer, true, false);
    }
    let first = success(&answer).clone();
    drop(pml);
    let project = gone(project);
    let again = project.stdio().execute(program);
    // `allow` has `*`, so nothing is asked about: the capability and the server were allowed before.
    assert_eq!(success(&again), &first);
}
