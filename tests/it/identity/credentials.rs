//! GW-01, GW-07: which routes are open without a credential, and how credentials are read.

use serde_json::{Value, json};

use crate::support::cli::text;
use crate::support::http::{get, send};
use crate::support::server::{Installation, Server};

/// The routes that are open to everyone.
const OPEN: &[&str] = &["/health", "/ready", "/version", "/openapi.json"];
/// Open as well, but present only if an issuer of tokens is configured.
const METADATA: &str = "/.well-known/oauth-protected-resource";
/// Open as well, but present only if the operator has set where releases are.
const SCRIPT: &str = "/install.sh";
/// Open for public entries.
const PUBLIC: &[&str] = &[
    "/mcp",
    "/mcp/{fqdn}",
    "/v0.1/servers",
    "/v0.1/servers/{name}/versions",
    "/v0.1/servers/{name}/versions/{version}",
];
/// Open to everyone who has the link.
const LINKED: &str = "/r/{slug}/v0.1/servers";

fn routes() -> Vec<(String, String, String)> {
    let printed = Server::shared().installation().run_ok(&["routes", "--json"]);
    let routes: Value = serde_json::from_str(&printed).unwrap();
    let field = |route: &Value, name: &str| route[name].as_str().unwrap().to_owned();
    let routes = routes.as_array().unwrap();
    routes.iter().map(|r| (field(r, "method"), field(r, "path"), field(r, "auth"))).collect()
}

/// GW-01: exactly the listed routes are open without a credential.
#[test]
fn all_but_the_listed_routes_need_a_credential() {
    let base = Server::shared().url();
    let routes = routes();
    assert!(routes.len() >= 7, "{routes:?}");
    for (method, path, auth) in &routes {
        let expected = match (method.as_str(), path.as_str()) {
            ("GET", path) if OPEN.contains(&path) || path.starts_with(METADATA) => "none",
            ("GET", SCRIPT) => "none",
            ("GET", path) if path.starts_with(LINKED) => "none",
            ("GET", path) if PUBLIC.contains(&path) => "public",
            // `mcp-publisher` can send the key of its login in the body only.
            ("POST", "/v0.1/auth/github-at") => "body",
            ("GET", "/metrics") => "operator",
            _ => "key",
        };
        assert_eq!(auth, expected, "{method} {path}");
        let existing =
            format!("{base}{}", path.replace("{fqdn}", "json:parse").replace("{id}", "self"))
                .replace("{name}/v", "pml.mcp%2Ffilesystem/v")
                .replace("{version}", "latest")
                .replace("{slug}", "00000000000000000000000000000000");
        let missing =
            format!("{base}{}", path.replace("{fqdn}", "no.such.thing").replace("{id}", "none"));
        let body = || (method != "GET").then(|| b"{}".to_vec());
        let reply = send(method, &existing, &[("content-type", "application/json")], body());
        if ["key", "body", "operator"].contains(&auth.as_str()) {
            assert_eq!(reply.status, 401, "{method} {path}");
            assert_eq!(reply.header("www-authenticate"), "Bearer realm=\"pml\"");
            let problem = reply.json();
            assert_eq!(
                (&problem["code"], &problem["number"]),
                (&json!("UNAUTHORIZED"), &json!(1009))
            );
            assert_eq!(reply.header("content-type"), "application/problem+json");
            let other = send(method, &missing, &[("content-type", "application/json")], body());
            assert_eq!(
                other.body, reply.body,
                "{method} {path}: the answer reveals whether the object exists"
            );
        } else {
            let closed = path.starts_with(METADATA) || path.starts_with(LINKED) || path == SCRIPT;
            let expected = if closed { 404 } else { 200 };
            assert_eq!(reply.status, expected, "{method} {path}");
        }
    }
    // Routes that are not listed do not exist.
    for path in ["/api/v1/", "/admin", "/metrics", "/mcp/proxy/x", "/debug"] {
        let status = get(&format!("{base}{path}"), &[]).status;
        assert!([401, 404].contains(&status), "{path}: {status}");
    }
}

/// With `PML_ANONYMOUS_READ=off`, public entries need a key as well.
#[test]
fn anonymous_reading_can_be_turned_off() {
    let server = Installation::new().start_with(&[("PML_ANONYMOUS_READ", "off")]);
    for path in [
        "/mcp",
        "/mcp/json:parse",
        "/mcp/no.such.thing",
        "/v0.1/servers",
        "/v0.1/servers/x/versions",
    ] {
        assert_eq!(get(&format!("{}{path}", server.url()), &[]).status, 401, "{path}");
    }
    let authorization = format!("Bearer {}", server.installation().first_key());
    let reply =
        get(&format!("{}/mcp/json:parse", server.url()), &[("authorization", &authorization)]);
    assert_eq!(reply.status, 200);
    assert_eq!(get(&format!("{}/health", server.url()), &[]).status, 200);
    assert_eq!(server.stop(), Some(0));
}

/// GW-07, SE-10: a key is accepted in its two headers only, and only unchanged.
#[test]
fn api_keys_are_accepted_in_their_headers_only() {
    let tenant = Server::shared().tenant();
    let url = format!("{}/api/v1/routing", tenant.url);
    let key = tenant.key.as_str();
    let bearer = format!("Bearer {key}");
    assert_eq!(get(&url, &[("authorization", &bearer)]).status, 200);
    assert_eq!(get(&url, &[("x-api-key", key)]).status, 200);
    for query in ["key", "api_key", "access_token", "token", "x-api-key"] {
        assert_eq!(get(&format!("{url}?{query}={key}"), &[]).status, 401, "{query}");
    }
    let cookie = format!("key={key}; Authorization=Bearer {key}");
    assert_eq!(get(&url, &[("cookie", &cookie)]).status, 401);
    let last = if key.ends_with('0') { "1" } else { "0" };
    let typo = format!("Bearer {}{last}", &key[..key.len() - 1]);
    for wrong in [typo.as_str(), "Bearer ", "Bearer x", "Basic eDp5", key, "Bearer pml_live_"] {
        assert_eq!(get(&url, &[("authorization", wrong)]).status, 401, "{wrong}");
    }
    assert!(!Server::shared().installation().log().contains(key), "the key was logged");
}

/// P3: a request with an invalid key is refused, even where anonymous requests are allowed.
#[test]
fn an_invalid_key_is_refused_even_on_public_routes() {
    let base = Server::shared().url();
    for path in ["/mcp", "/mcp/json:parse"] {
        let reply = get(&format!("{base}{path}"), &[("authorization", "Bearer pml_wrong")]);
        assert_eq!(reply.status, 401, "{path}: {}", text(&reply.body));
    }
}

/// GW-31: a key with only the right `execute` cannot read the catalog.
#[test]
fn the_execute_right_does_not_include_read() {
    let executes = Server::shared().tenant_with_rights("execute");
    let authorization = format!("Bearer {}", executes.key);
    let reply = get(&format!("{}/mcp", executes.url), &[("authorization", &authorization)]);
    assert_eq!(reply.status, 403, "{}", text(&reply.body));
}
