//! Reading the registry over HTTP: `GET /mcp` and `GET /mcp/{fqdn}`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::cli::text;
use crate::support::http::{Reply, get, send};
use crate::support::server::{Server, Tenant};

fn read(path: &str) -> Reply {
    get(&format!("{}{path}", Server::shared().url()), &[])
}

fn read_as(tenant: &Tenant, path: &str) -> Reply {
    let authorization = format!("Bearer {}", tenant.key);
    get(&format!("{}{path}", tenant.url), &[("authorization", &authorization)])
}

/// The `ETag` of an entry is its integrity hash. A matching `If-None-Match` gets 304 without a body.
#[test]
fn an_entry_is_served_with_an_etag_and_revalidated() {
    let reply = read("/mcp/pml.mcp.filesystem");
    assert_eq!(reply.status, 200);
    assert!(reply.header("content-type").starts_with("application/json"));
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    assert!(reply.header("cache-control").starts_with("public"), "{:?}", reply.headers);
    let entry = reply.json();
    assert_eq!((&entry["fqdn"], &entry["type"]), (&json!("pml.mcp.filesystem"), &json!("stdio")));
    assert_eq!(entry["routing"], "client");
    assert!(entry["install"]["args"].to_string().contains("server-filesystem@"), "pinned: {entry}");
    assert!(entry["tools"].as_array().is_some_and(|tools| tools.len() >= 10), "{entry}");
    let etag = reply.header("etag").to_owned();
    assert_eq!(etag, format!("\"{}\"", entry["integrity"].as_str().unwrap()));

    let url = format!("{}/mcp/pml.mcp.filesystem", Server::shared().url());
    for condition in [etag.as_str(), &format!("W/{etag}"), &format!("\"other\", {etag}"), "*"] {
        let same = get(&url, &[("if-none-match", condition)]);
        assert_eq!((same.status, same.body.len()), (304, 0), "{condition}");
        assert_eq!(same.header("etag"), etag);
    }
    assert_eq!(get(&url, &[("if-none-match", "\"other\"")]).status, 200);
}

/// Short names, full names and pinned names resolve to the same content.
#[test]
fn short_full_and_pinned_names_resolve_to_the_same_entry() {
    let tool = read("/mcp/pml.mcp.json.parse").json();
    let pinned = tool["fqdn"].as_str().unwrap();
    assert!(
        pinned.starts_with("pml.mcp.json.parse.")
            && pinned.len() == "pml.mcp.json.parse.".len() + 4
    );
    for name in [pinned, "json:parse", "pml.mcp.json.parse@latest", "json:parse@latest"] {
        assert_eq!(read(&format!("/mcp/{name}")).json(), tool, "{name}");
    }
    assert_eq!(tool["tools"][0]["name"], "parse");
    assert!(tool["tools"][0]["inputSchema"].is_object());
    assert_eq!(read("/mcp/filesystem").json(), read("/mcp/pml.mcp.filesystem").json());
}

/// A pinned name with an outdated hash gets 404 with the current name.
#[test]
fn an_outdated_pin_gets_the_current_name() {
    let current = read("/mcp/json:parse").json()["fqdn"].as_str().unwrap().to_owned();
    let other = if current.ends_with("0000") { "1111" } else { "0000" };
    let reply = read(&format!("/mcp/pml.mcp.json.parse.{other}"));
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json()["error"], "hash_mismatch");
    assert_eq!(reply.json()["current"], current);
    assert_eq!(reply.header("cache-control"), "private, no-store");
}

/// An unknown entry gets 404 with the documented body, which must not be cached.
#[test]
fn an_unknown_entry_is_404_and_not_cached() {
    let reply = read("/mcp/acme.web.nothing");
    assert_eq!(reply.status, 404);
    assert_eq!(
        reply.json(),
        json!({ "error": "not_found", "message": "MCP 'acme.web.nothing' not in registry" })
    );
    assert_eq!(reply.header("cache-control"), "private, no-store");
}

/// RG-09: malicious paths get 400 or 404, and the answer contains neither a file nor internals.
#[test]
fn malicious_paths_are_refused() {
    for trick in [
        "..%2f..%2fetc%2fpasswd",
        "%00",
        "%252e%252e",
        "pml.mcp.filesystem%00",
        "pml.mcp.filesystem;x",
        "a%5Cb",
        "pml.mcp.filesystem.",
        "pml.mcp.filesystem%20",
        "PML.mcp.filesystem",
        "pml.mcp.%66ilesystem%2f",
        "%e2%80%ae",
        "%ff",
        "pml..mcp",
        "filesystem@9.9.9",
    ] {
        let reply = read(&format!("/mcp/{trick}"));
        assert!([400, 404].contains(&reply.status), "{trick}: {}", reply.status);
        let body = text(&reply.body);
        assert!(
            !body.contains("root:") && !body.contains("sqlx") && !body.contains("select "),
            "{trick}: {body}"
        );
    }
}

/// The pages of the catalog contain each entry exactly once.
#[test]
fn pages_of_the_catalog_contain_each_entry_once() {
    let all = read("/mcp?limit=100").json();
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap_or_else(|| panic!("{page:#}"));
        items.iter().map(|item| item["fqdn"].as_str().unwrap().to_owned()).collect()
    };
    let expected = names(&all);
    assert!(expected.len() > 8 && all["nextCursor"].is_null(), "{all:#}");
    assert_eq!(all["total"], expected.len());
    for wanted in ["pml.mcp.filesystem", "pml.mcp.memory", "pml.mcp.json", "pml.mcp.math"] {
        assert!(expected.iter().any(|name| name == wanted), "{wanted}: {expected:?}");
    }
    let mut found = Vec::new();
    let mut path = "/mcp?limit=3".to_owned();
    loop {
        let page = read(&path).json();
        assert!(names(&page).len() <= 3);
        found.extend(names(&page));
        match page["nextCursor"].as_str() {
            Some(cursor) => path = format!("/mcp?limit=3&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(found, expected);
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len());
    for (query, kind) in [("type=native", "native"), ("type=stdio", "stdio")] {
        let page = read(&format!("/mcp?limit=100&{query}")).json();
        let items = page["items"].as_array().unwrap();
        assert!(
            !items.is_empty() && items.iter().all(|item| item["type"] == kind),
            "{query}: {page:#}"
        );
    }
    for bad in ["cursor=zz", "limit=x", "type=nothing", "unknown=1"] {
        assert_eq!(read(&format!("/mcp?{bad}")).status, 400, "{bad}");
    }
}

/// RG-06: answers to a request with a key must not be stored in shared caches.
#[test]
fn answers_to_a_tenant_are_not_cached() {
    let tenant = Server::shared().tenant();
    assert_eq!(read_as(&tenant, "/mcp").header("cache-control"), "private, no-store");
    assert!(read("/mcp").header("cache-control").starts_with("public"));
    let vary = read("/mcp/json:parse").header("vary").to_ascii_lowercase();
    assert!(vary.contains("authorization") && vary.contains("x-api-key"), "{vary}");
}

/// A client that requests an event stream gets 405.
#[test]
fn requesting_an_event_stream_gets_405() {
    let url = format!("{}/mcp", Server::shared().url());
    let reply = get(&url, &[("accept", "text/event-stream")]);
    assert_eq!(reply.status, 405);
    assert!(reply.header("allow").contains("POST"));
}

/// Requests that are refused before they become an execution get problem JSON (RFC 9457).
#[test]
fn refused_requests_get_problem_json() {
    let url = &Server::shared().url();
    for (method, path, status) in [
        ("GET", "/", 404),
        ("GET", "/no/such/path", 404),
        ("GET", "//mcp", 404),
        ("GET", "/mcp/%ff", 400),
        ("GET", "/mcp?limit=0", 400),
        ("GET", "/mcp?limit=101", 400),
        ("GET", "/mcp?limit=x", 400),
        ("GET", "/mcp?nonsense=1", 400),
        ("GET", "/mcp?cursor=!!", 400),
        ("DELETE", "/health", 405),
        ("PUT", "/mcp/json:parse", 405),
    ] {
        let reply = send(method, &format!("{url}{path}"), &[], None);
        assert_eq!(reply.status, status, "{method} {path}: {}", text(&reply.body));
        assert_eq!(reply.header("content-type"), "application/problem+json", "{method} {path}");
        let problem = reply.json();
        assert_eq!(problem["status"], status, "{problem}");
        assert_eq!(problem["code"], "INVALID_REQUEST", "{problem}");
        assert_eq!(status == 405, !reply.header("allow").is_empty(), "{method} {path}");
    }
}

/// The routing rules are served with an `ETag`, and have the documented defaults.
#[test]
fn the_routing_rules_are_served_with_an_etag() {
    let tenant = Server::shared().tenant();
    let reply = read_as(&tenant, "/api/v1/routing");
    assert_eq!(reply.status, 200);
    let rules = reply.json()["rules"].clone();
    let side = |namespace: &str| {
        let pattern = json!(format!("{namespace}:*"));
        let found = rules.as_array().unwrap().iter().find(|rule| rule[0] == pattern);
        found.unwrap_or_else(|| panic!("no rule for `{namespace}`: {rules}"))[1].clone()
    };
    let client = "filesystem git shell web process docker kubernetes ssh database sqlite postgres";
    // Shipped MCP servers that the gateway cannot run itself yet.
    let shipped = "memory fetch sequential-thinking time everything";
    let server = "std tavily brave_search exa github slack api http context7 magic json math datetime \
        crypto collections validation format transform algo string color geo resilience schema diff \
        state plots pml";
    for (namespaces, expected) in [(client, "client"), (shipped, "client"), (server, "server")] {
        for namespace in namespaces.split_whitespace() {
            assert_eq!(side(namespace), expected, "{namespace}");
        }
    }
    let authorization = format!("Bearer {}", tenant.key);
    let url = format!("{}/api/v1/routing", tenant.url);
    let headers =
        [("authorization", authorization.as_str()), ("if-none-match", reply.header("etag"))];
    assert_eq!(get(&url, &headers).status, 304);
}
