//! The audit log: readable by the administrators of its scope only.

use serde_json::{Value, json};

use crate::support::http::{Reply, get};
use crate::support::server::{Server, Tenant};

fn audit(tenant: &Tenant, query: &str) -> Reply {
    let authorization = format!("Bearer {}", tenant.key);
    let url = format!("{}/api/v1/audit{query}", tenant.url);
    get(&url, &[("authorization", authorization.as_str())])
}

#[test]
fn the_audit_log_is_paged_and_its_chain_verified() {
    let server = Server::shared();
    let admin = server.tenant_with_rights("read,admin");
    let whole = audit(&admin, "?verify=true");
    assert_eq!((whole.status, whole.header("cache-control")), (200, "private, no-store"));
    let whole = whole.json();
    assert_eq!(whole["chain"], json!({ "intact": true }), "{whole}");
    let events = whole["events"].as_array().unwrap();
    let actions: Vec<&str> =
        events.iter().rev().filter_map(|event| event["action"].as_str()).collect();
    assert_eq!(actions, ["scope.create", "key.create"], "{whole}");
    assert!(!whole.to_string().contains(&admin.key), "the key was recorded");
    assert!(whole.get("next_before").is_none(), "{whole}");

    let newest = audit(&admin, "?limit=1").json();
    assert_eq!((&newest["events"][0], newest.get("chain")), (&events[0], None::<&Value>));
    let oldest = audit(&admin, &format!("?limit=1&before={}", newest["next_before"])).json();
    assert_eq!(oldest["events"][0], events[1]);
}

#[test]
fn the_audit_log_needs_admin_and_shows_only_its_scope() {
    let server = Server::shared();
    let reader = server.tenant_with_rights("execute,read,publish");
    let refused = audit(&reader, "");
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("FORBIDDEN")));
    let admin = server.tenant_with_rights("admin");
    for query in ["?limit=0", "?limit=201", "?limit=x", "?before=x", "?org=other", "?verify=maybe"]
    {
        assert_eq!(audit(&admin, query).status, 400, "{query}");
    }
    // Events of other scopes are neither listed nor counted.
    let events = audit(&admin, "?limit=200").json()["events"].as_array().unwrap().len();
    assert_eq!(events, 2);
}
