//! The operator says which tools run where, and every gateway on the database follows.

use serde_json::{Value, json};

use crate::support::cli::text;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server};
use crate::support::{PATIENCE, poll};

fn rule(installation: &Installation, pattern: &str) -> Option<Value> {
    let rules: Value =
        serde_json::from_str(&installation.run_well(&["routing", "list", "--json"])).unwrap();
    rules.as_array().unwrap().iter().find(|rule| rule["pattern"] == pattern).cloned()
}

/// A rule is set and taken back, and two gateways on one database hear of it. Every entry that ships says itself
/// where it runs, so the rules are for what a company adds.
#[test]
fn a_rule_reaches_every_gateway() {
    let installation = Installation::new();
    let replicas = [installation.start(), installation.replica().start()];
    let heard = |changes: usize| {
        for (number, replica) in replicas.iter().enumerate() {
            poll(&format!("gateway {number} to hear of change {changes}"), PATIENCE, || {
                let log = replica.installation().log();
                (log.matches("Routes changed").count() == changes).then_some(())
            });
        }
    };
    let shipped = json!({ "pattern": "tavily:*", "routing": "server", "origin": "shipped" });
    assert_eq!(rule(&installation, "tavily:*"), Some(shipped.clone()));

    let said = installation.run_well(&["routing", "set", "tavily:*", "client"]);
    assert_eq!(said, "`tavily:*` now runs on the user's machine.\n");
    heard(1);
    assert_eq!(rule(&installation, "tavily:*").unwrap()["origin"], "operator");
    let listed = installation.run_well(&["routing", "list"]);
    assert!(listed.lines().any(|line| line.starts_with("tavily:* ") && line.ends_with("(yours)")));

    installation.run_well(&["routing", "set", "acme:deploy", "server"]);
    heard(2);
    // Said again, it is the same.
    installation.run_well(&["routing", "set", "acme:deploy", "server"]);
    installation.run_well(&["routing", "unset", "acme:deploy"]);
    heard(3);
    assert_eq!(rule(&installation, "acme:deploy"), None);

    // What ships comes back with the last rule of the operator.
    installation.run_well(&["routing", "unset", "tavily:*"]);
    heard(4);
    assert_eq!(rule(&installation, "tavily:*"), Some(shipped));
}

/// What is no rule is told, and changes nothing.
#[test]
fn a_wrong_rule_is_told() {
    let installation = Installation::new();
    let before = installation.run_well(&["routing", "list", "--json"]);
    for (arguments, code, told) in [
        (&["routing", "set", "math", "client"][..], 2, "math"),
        (&["routing", "set", "Math Tools:*", "client"], 2, "Math Tools"),
        (&["routing", "set", "math:*", "moon"], 2, "expected client or server"),
        (&["routing", "unset", "json:*"], 1, "you have no rule for `json:*`"),
        (&["routing", "unset", "nothing:here"], 1, "you have no rule for `nothing:here`"),
    ] {
        let output = installation.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(told), "{arguments:?}: {stderr}");
    }
    assert_eq!(installation.run_well(&["routing", "list", "--json"]), before);
}

/// The operator says which tools change nothing; agents hear of it, and what changes is judged anew.
#[test]
fn the_operator_says_what_a_tool_does() {
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
    let said = installation.run_well(&["tools", "set", name, "read", "--eager"]);
    assert!(
        said.starts_with(&format!("`{name}.")) && said.contains("is now marked `read`"),
        "{said}"
    );
    assert_eq!(shown(), json!(true));
    let listed: Value =
        serde_json::from_str(&installation.run_well(&["tools", "list", "--json"])).unwrap();
    let own = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|tool| tool["fqdn"].as_str().unwrap().starts_with(&format!("{name}.")));
    assert_eq!(own.unwrap()["eager"], true, "{listed}");
    installation.run_well(&["tools", "unset", name]);
    assert_eq!(shown(), Value::Null);
    for (arguments, told) in [
        (&["tools", "set", "pml.mcp.no.such", "read"][..], "there is no tool"),
        (&["tools", "set", name, "write", "--eager"], "only a read-only tool"),
        (&["tools", "unset", name], "you have not marked"),
        (&["tools", "set", name, "maybe"], "maybe"),
    ] {
        let output = installation.run(arguments);
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && stderr.contains(told), "{arguments:?}: {stderr}");
    }
}
