//! The operator's rules for routing and effects of tools, which apply on every gateway of the database.

use serde_json::{Value, json};

use crate::support::cli::text;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server};
use crate::support::{PATIENCE, poll};

fn rule(installation: &Installation, pattern: &str) -> Option<Value> {
    let rules: Value =
        serde_json::from_str(&installation.run_ok(&["routing", "list", "--json"])).unwrap();
    rules.as_array().unwrap().iter().find(|rule| rule["pattern"] == pattern).cloned()
}

/// Two gateways on one database learn of rules that are set and unset. Entries of the catalog have their own routing,
/// so rules are for entries that a company adds.
#[test]
fn a_routing_rule_reaches_every_gateway() {
    let installation = Installation::new();
    let replicas = [installation.start(), installation.replica().start()];
    let wait_for_changes = |changes: usize| {
        for (number, replica) in replicas.iter().enumerate() {
            poll(&format!("gateway {number} to learn of change {changes}"), PATIENCE, || {
                let log = replica.installation().log();
                (log.matches("Routes changed").count() == changes).then_some(())
            });
        }
    };
    let shipped = json!({ "pattern": "tavily:*", "routing": "server", "origin": "shipped" });
    assert_eq!(rule(&installation, "tavily:*"), Some(shipped.clone()));

    let printed = installation.run_ok(&["routing", "set", "tavily:*", "client"]);
    assert_eq!(printed, "`tavily:*` now runs on the user's machine.\n");
    wait_for_changes(1);
    assert_eq!(rule(&installation, "tavily:*").unwrap()["origin"], "operator");
    let listed = installation.run_ok(&["routing", "list"]);
    assert!(listed.lines().any(|line| line.starts_with("tavily:* ") && line.ends_with("(yours)")));

    installation.run_ok(&["routing", "set", "acme:deploy", "server"]);
    wait_for_changes(2);
    // Setting the same rule again changes nothing.
    installation.run_ok(&["routing", "set", "acme:deploy", "server"]);
    installation.run_ok(&["routing", "unset", "acme:deploy"]);
    wait_for_changes(3);
    assert_eq!(rule(&installation, "acme:deploy"), None);

    // Unsetting the operator's rule restores the shipped one.
    installation.run_ok(&["routing", "unset", "tavily:*"]);
    wait_for_changes(4);
    assert_eq!(rule(&installation, "tavily:*"), Some(shipped));
}

/// An invalid rule is refused and changes nothing.
#[test]
fn invalid_routing_rules_are_refused() {
    let installation = Installation::new();
    let before = installation.run_ok(&["routing", "list", "--json"]);
    for (arguments, code, message) in [
        (&["routing", "set", "math", "client"][..], 2, "math"),
        (&["routing", "set", "Math Tools:*", "client"], 2, "Math Tools"),
        (&["routing", "set", "math:*", "moon"], 2, "expected client or server"),
        (&["routing", "unset", "json:*"], 1, "you have no rule for `json:*`"),
        (&["routing", "unset", "nothing:here"], 1, "you have no rule for `nothing:here`"),
    ] {
        let output = installation.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
    }
    assert_eq!(installation.run_ok(&["routing", "list", "--json"]), before);
}

/// The operator can mark a tool as read-only, and `pml_discover` shows it.
#[test]
fn the_operator_can_mark_a_tool_as_read_only() {
    let server = Server::shared();
    let installation = server.installation();
    let name = "pml.mcp.fetch.fetch";
    let shown = || {
        let tenant = server.tenant();
        let found = HttpMcp::new(&tenant, Era::Stateless)
            .call("pml_discover", json!({ "name": "fetch:fetch" }));
        found["structuredContent"]["tools"][0]["read_only"].clone()
    };
    assert_eq!(shown(), Value::Null);
    let printed = installation.run_ok(&["tools", "set", name, "read", "--eager"]);
    assert!(
        printed.starts_with(&format!("`{name}.")) && printed.contains("is now marked `read`"),
        "{printed}"
    );
    assert_eq!(shown(), json!(true));
    let listed: Value =
        serde_json::from_str(&installation.run_ok(&["tools", "list", "--json"])).unwrap();
    let own = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|tool| tool["fqdn"].as_str().unwrap().starts_with(&format!("{name}.")));
    assert_eq!(own.unwrap()["eager"], true, "{listed}");
    installation.run_ok(&["tools", "unset", name]);
    assert_eq!(shown(), Value::Null);
    for (arguments, message) in [
        (&["tools", "set", "pml.mcp.no.such", "read"][..], "there is no tool"),
        (&["tools", "set", name, "write", "--eager"], "only a read-only tool"),
        (&["tools", "unset", name], "you have not marked"),
        (&["tools", "set", name, "maybe"], "maybe"),
    ] {
        let output = installation.run(arguments);
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && stderr.contains(message), "{arguments:?}: {stderr}");
    }
}
