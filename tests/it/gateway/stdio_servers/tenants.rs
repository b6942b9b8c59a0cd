//! What a server has of a tenant and of a caller belongs to them.

use serde_json::{Value, json};

use super::{MISBEHAVIOUR, add, call, client, fixture, install, supervisors};
use crate::support::expect::failure;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Tenant};

/// P3: what one tenant's server remembers, no other tenant's server knows; it stays when the process ends.
#[test]
fn a_tenant_has_its_own_memory() {
    let gateway = Installation::new().start();
    install(gateway.installation(), &["pml.mcp.memory"]);
    let (one, two) = (gateway.tenant(), gateway.tenant());
    let (one, two) = (client(&one, "memory:read_graph"), client(&two, "memory:read_graph"));
    let entity = json!({ "name": "canary-of-one", "entityType": "t", "observations": [] });
    call(&one, "memory:create_entities", &json!({ "entities": [entity] }));
    let own = call(&one, "memory:read_graph", &json!({}));
    assert_eq!(own["entities"][0]["name"], "canary-of-one");
    let other = call(&two, "memory:read_graph", &json!({}));
    assert_eq!(other["entities"], json!([]));
    assert_eq!(supervisors(&gateway).len(), 2);
    // Each has a process of its own, and a new process has what the old one remembered.
    for supervisor in supervisors(&gateway) {
        supervisor.signal("KILL");
    }
    let again = crate::support::poll("the server to start again", crate::support::PATIENCE, || {
        let graph = one.execute("return await mcp.memory.read_graph({})");
        (graph["status"] == "success").then_some(graph["result"].clone())
    });
    assert_eq!(again["entities"][0]["name"], "canary-of-one");
}

/// Calls a tool with a secret in the header.
#[track_caller]
fn with_secret(tenant: &Tenant, tool: &str, secret: Option<&str>) -> Value {
    let mut client = HttpMcp::new(tenant, Era::Stateless);
    if let Some(secret) = secret {
        client = client.with_secret("x-pml-key-hostile-key", secret);
    }
    let note = secret.unwrap_or("none").len();
    let tool = tool.replace(':', ".");
    client.execute(&format!("return await mcp.{tool}({{ text: 'note of {note}' }})"))
}

/// P4: a secret reaches one process by its environment. A process that was started with it serves no call with another
/// secret, nor one without, and neither results, errors nor the log have it.
#[test]
fn a_secret_belongs_to_the_calls_that_carry_it() {
    let gateway = Installation::new().start();
    let script = fixture("misbehaves.js");
    add(&gateway, "keyed", &script, MISBEHAVIOUR, &["HOSTILE_KEY"]);
    let tenant = gateway.tenant();
    drop(client(&tenant, "keyed:pid"));
    let (one, two) = ("canary-7c41-of-one", "canary-7c41-of-two");

    let pid = |secret: &str| {
        let envelope = with_secret(&tenant, "keyed:pid", Some(secret));
        assert_eq!(envelope["status"], "success", "{envelope:#}");
        envelope["result"].clone()
    };
    let first = pid(one);
    assert_eq!(pid(one), first);
    assert_ne!(pid(two), first);
    let without = with_secret(&tenant, "keyed:pid", None);
    let message = failure(&without, "API_KEY_REQUIRED").to_owned();
    assert!(message.contains("HOSTILE_KEY"), "{message}");

    // Its environment has the secret and nothing of the gateway. It comes back redacted.
    let printed = with_secret(&tenant, "keyed:env", Some(one))["result"].to_string();
    assert!(printed.contains("HOSTILE_KEY") && !printed.contains("canary-7c41"), "{printed}");
    assert!(!printed.contains("PML_") && !printed.contains("PGPASS"), "{printed}");
    let refused = with_secret(&tenant, "keyed:refuse", Some(one));
    let message = failure(&refused, "TOOL_FAILED").to_owned();
    assert!(message.contains("not with") && !message.contains("canary-7c41"), "{message}");
    // What it stores with one secret, it does not have with another.
    assert_eq!(with_secret(&tenant, "keyed:remember", Some(one))["result"], "kept");
    assert!(with_secret(&tenant, "keyed:recall", Some(one))["result"].to_string().contains("note"));
    failure(&with_secret(&tenant, "keyed:recall", Some(two)), "TOOL_FAILED");
    with_secret(&tenant, "keyed:crash", Some(one));
    // Nor has the log what a server prints that does not start.
    let leaks =
        "#!/usr/bin/env node\nconsole.error(`key ${process.env.HOSTILE_KEY}`);\nprocess.exit(1);";
    add(&gateway, "leaks", leaks, &["pid"], &["HOSTILE_KEY"]);
    drop(client(&tenant, "leaks:pid"));
    failure(&with_secret(&tenant, "leaks:pid", Some(one)), "TOOL_UNAVAILABLE");
    let log = gateway.installation().log();
    assert!(log.contains("Could not start a stdio server") && log.contains("key [redacted]"));
    assert!(!log.contains("canary-7c41"));
}
