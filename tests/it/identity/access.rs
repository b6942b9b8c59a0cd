//! Access control: requests every route with an object id by every kind of credential. An object of another scope must
//! look nonexistent.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::support::http::{HttpMcp, Reply, send};
use crate::support::mcp_client::Era;
use crate::support::server::{Server, Tenant};
use crate::support::upstream::Entry;

/// A route of `pml-server routes --json`.
struct Route {
    method: String,
    path: String,
    auth: String,
}

fn routes() -> Vec<Route> {
    let printed = Server::shared().installation().run_ok(&["routes", "--json"]);
    let routes: Value = serde_json::from_str(&printed).unwrap();
    let field = |route: &Value, name: &str| route[name].as_str().unwrap().to_owned();
    let routes = routes.as_array().unwrap();
    routes
        .iter()
        .map(|route| Route {
            method: field(route, "method"),
            path: field(route, "path"),
            auth: field(route, "auth"),
        })
        .collect()
}

/// A scope with an object of each kind.
struct Side {
    url: String,
    admin: String,
    reader: String,
    expired: String,
    scope: String,
    /// An API key that is otherwise unused.
    key_id: String,
    /// The namespace of the scope's capability.
    namespace: String,
    /// A stored secret.
    secret: String,
    /// A link to the registry.
    link: String,
    /// An MCP server, by its name in the official API.
    server: String,
    /// A member of the organisation.
    member: String,
    /// An execution with a trace, which has the same id.
    execution: String,
    /// A workspace whose tools were sent.
    client: String,
}

impl Side {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let server = Server::shared();
        let operator = server.installation();
        // The requests come from the owner of a separate organisation, who has the most rights possible.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let (org, project) = (format!("side{number}"), format!("s{number}"));
        let (scope, member) = (format!("{org}.{project}"), format!("{org}@acme.example"));
        operator.run_ok(&["scope", "create", &scope]);
        let mut owner = vec!["keys", "create", "--scope", &scope, "--principal", "boss"];
        owner.extend(["--can", "execute,read,publish,admin"]);
        let tenant =
            Tenant { key: operator.run_ok(&owner).trim().to_owned(), url: server.url().to_owned() };
        for (role, who) in [("owner", "boss"), ("viewer", &member)] {
            operator.run_ok(&["members", "add", "--org", &org, "--role", role, who]);
        }
        let make = |can: &str| -> Value {
            let made = ["keys", "create", "--scope", &scope, "--can", can, "--json"];
            serde_json::from_str(&operator.run_ok(&made)).unwrap()
        };
        let text = |made: &Value, field: &str| made[field].as_str().unwrap().to_owned();
        let (reader, ended, object) =
            (make("read"), make("execute,read,publish,admin"), make("read"));
        // Rotation makes the key expire instead of revoking it.
        operator.run_ok(&["keys", "rotate", "--scope", &scope, &text(&ended, "id")]);
        let expired = text(&ended, "key");
        crate::support::poll("the key to expire", crate::support::PATIENCE, || {
            let url = format!("{}/api/v1/keys/self", tenant.url);
            (call(&expired, "GET", &url, None).status == 401).then_some(())
        });
        let namespace = scope.rsplit('.').next().unwrap().to_owned();
        let secret = format!("{}_KEY", namespace.to_uppercase());
        let capability =
            json!({ "name": format!("{namespace}:own"), "code": "/** Ours. */ return 1" });
        Entry::http(&scope, &format!("up_{namespace}"), "http://127.0.0.1:9/mcp").publish(operator);
        for (method, path, body) in [
            ("POST", "capabilities".to_owned(), capability),
            ("POST", "servers".to_owned(), published(&format!("{namespace}_published"))),
            ("PUT", format!("secrets/{secret}"), json!({ "value": "v", "for": "project" })),
        ] {
            let url = format!("{}/api/v1/{path}", tenant.url);
            assert_eq!(call(&tenant.key, method, &url, Some(&body)).status, 201, "{path}");
        }
        let client = format!("0195d2a0-0000-7000-8000-{number:012}");
        let tools = format!("{}/api/v1/tools/sync", tenant.url);
        assert_eq!(call(&tenant.key, "POST", &tools, Some(&synced(&client))).status, 200);
        let links = format!("{}/api/v1/registry-links", tenant.url);
        let link = call(&tenant.key, "POST", &links, Some(&json!({ "name": "ours" }))).json();
        let mcp = format!("{namespace}_mcp");
        let ran = HttpMcp::new(&tenant, Era::Stateless).execute("return 1");
        let execution = text(&ran, "execution_id");
        crate::support::poll("the trace", crate::support::PATIENCE, || {
            let url = format!("{}/api/v1/traces/{execution}", tenant.url);
            (call(&tenant.key, "GET", &url, None).status == 200).then_some(())
        });
        Self {
            execution,
            client,
            link: text(&link, "id"),
            server: crate::registry::official::write_server(operator, &scope, &mcp, "Ours."),
            url: tenant.url,
            admin: tenant.key,
            reader: text(&reader, "key"),
            expired,
            key_id: text(&object, "id"),
            namespace,
            secret,
            scope,
            member,
        }
    }

    /// Returns all objects of the scope, as its administrator and the operator see them.
    fn state(&self) -> Value {
        let keys = ["keys", "list", "--scope", &self.scope, "--json"];
        let keys: Value =
            serde_json::from_str(&Server::shared().installation().run_ok(&keys)).unwrap();
        let audit = call(&self.admin, "GET", &format!("{}/api/v1/audit?limit=200", self.url), None);
        let read = |path: &str| {
            let reply = call(&self.admin, "GET", &format!("{}{path}", self.url), None);
            assert_eq!(reply.status, 200, "{path}");
            String::from_utf8_lossy(&reply.body).into_owned()
        };
        let capability = read(&format!("/mcp/{}:own", self.namespace));
        let published = read(&format!("/mcp/{}_published", self.namespace));
        let [members, projects] = ["/api/v1/members", "/api/v1/projects"].map(read);
        let executions = read("/api/v1/executions");
        let trace = read(&format!("/api/v1/traces/{}", self.execution));
        let synced = read("/api/v1/tools/sync");
        assert!(synced.contains(&self.client), "{synced}");
        assert!(executions.contains(&self.execution), "{executions}");
        assert!(members.contains(&self.member) && projects.contains(&self.scope), "{members}");
        let secrets = read("/api/v1/secrets");
        assert!(secrets.contains(&self.secret), "{secrets}");
        json!({
            "keys": keys, "audit": audit.json(), "capability": capability, "published": published, "secrets": secrets,
            "links": read("/api/v1/registry-links"), "servers": read("/v0.1/servers?limit=100"),
            "members": members, "projects": projects, "executions": executions, "trace": trace,
            "synced": synced,
        })
    }
}

/// Returns the path of a route with the id of this side's object, and with an unknown id.
///
/// The test fails for a route that is missing here, so that a new route cannot go untested.
fn fill(route: &Route, side: &Side) -> Option<[String; 2]> {
    let nobodys = match route.path.as_str() {
        "/api/v1/keys/{id}" | "/api/v1/keys/{id}/rotate" => {
            [side.key_id.clone(), "00000000-0000-7000-8000-000000000000".to_owned()]
        }
        "/api/v1/capabilities/{name}/deprecate" | "/api/v1/capabilities/{name}/yank" => {
            [format!("{}:own", side.namespace), "nobody:own".to_owned()]
        }
        "/api/v1/capabilities/{name}" => {
            [format!("{}:own", side.namespace), "nobody:own".to_owned()]
        }
        "/api/v1/servers/{name}"
        | "/api/v1/servers/{name}/deprecate"
        | "/api/v1/servers/{name}/yank" => {
            [format!("{}_published", side.namespace), "nobodys_server".to_owned()]
        }
        "/api/v1/secrets/{name}" => {
            [format!("{}?for=project", side.secret), "NOBODYS_KEY?for=project".to_owned()]
        }
        "/api/v1/registry-links/{id}" => {
            [side.link.clone(), "00000000-0000-7000-8000-000000000000".to_owned()]
        }
        "/v0.1/servers/{name}/versions" | "/v0.1/servers/{name}/versions/{version}" => {
            [side.server.replace('/', "%2F"), "no.such%2Fthing".to_owned()]
        }
        "/api/v1/members/{principal}" => [side.member.clone(), "nobody@acme.example".to_owned()],
        "/api/v1/projects/{name}" => {
            [side.scope.rsplit('.').next()?.to_owned(), "no_such_project".to_owned()]
        }
        "/api/v1/executions/{id}" | "/api/v1/traces/{id}" => {
            [side.execution.clone(), "00000000-0000-7000-8000-000000000000".to_owned()]
        }
        "/api/v1/tools/sync/{client}" => {
            [side.client.clone(), "00000000-0000-7000-8000-000000000000".to_owned()]
        }
        "/mcp/proxy/{server}" => {
            [format!("{}.up_{}", side.scope, side.namespace), "no.such.thing".to_owned()]
        }
        "/mcp/{fqdn}" => {
            [format!("{}.{}.own", side.scope, side.namespace), "no.such.thing.own".to_owned()]
        }
        _ => return None,
    };
    let open = route.path.find('{')?;
    let close = route.path.find('}')?;
    let rest = route.path[close + 1..].replace("{version}", "latest");
    Some(nobodys.map(|value| format!("{}{value}{rest}", &route.path[..open])))
}

/// Returns the request that publishes a server.
fn published(name: &str) -> Value {
    json!({
        "name": name, "type": "stdio", "description": "Ours.", "install": { "command": "npx" },
        "tools": [{ "name": "own", "description": "Ours.", "inputSchema": { "type": "object" } }],
    })
}

/// Returns the request that sends the tools of a workspace's server.
fn synced(client: &str) -> Value {
    let tool =
        json!({ "name": "own", "description": "Ours.", "inputSchema": { "type": "object" } });
    json!({ "client": client, "namespace": "own", "tools": [tool] })
}

fn body(route: &Route) -> Option<Value> {
    match (route.method.as_str(), route.path.as_str()) {
        ("POST", "/api/v1/capabilities") => {
            Some(json!({ "name": "x:y", "code": "/** Fine. */ return 1" }))
        }
        ("POST", "/api/v1/servers") => Some(published("x")),
        ("POST", "/api/v1/servers/{name}/deprecate") => Some(json!({ "message": "old" })),
        ("POST", "/api/v1/servers/{name}/yank") => Some(json!({ "version": "0.1.0" })),
        ("POST", "/api/v1/capabilities/{name}/deprecate") => Some(json!({ "message": "old" })),
        ("POST", "/api/v1/capabilities/{name}/yank") => Some(json!({ "version": "0.1.0" })),
        ("POST", "/api/v1/keys") => Some(json!({ "name": "n", "can": ["read"] })),
        ("POST", "/api/v1/registry-links") => Some(json!({ "name": "n" })),
        ("POST", "/api/v1/traces") => Some(json!({ "runs": [] })),
        ("POST", "/api/v1/tools/sync") => Some(synced("0195d2a0-0000-7000-8000-999999999999")),
        ("POST", "/api/v1/projects") => Some(json!({ "name": "another" })),
        ("PUT", "/api/v1/members/{principal}") => Some(json!({ "role": "viewer" })),
        ("POST", _) => Some(json!({})),
        _ => None,
    }
}

/// Returns the body of an answer without the requested name, for comparison.
fn body_without_name(reply: &Reply, path: &str) -> String {
    let name = path.rsplit('/').next().unwrap().split('?').next().unwrap();
    String::from_utf8_lossy(&reply.body).replace(name, "")
}

/// GW-09: on every route, an id of another scope gets the same answer as an unknown id.
#[test]
fn objects_of_another_scope_look_nonexistent() {
    let [ours, theirs] = [Side::new(), Side::new()];
    let before = theirs.state();
    let mut seen = 0;
    // `PUT` of a secret or member creates one in the caller's own scope, whatever other scopes have under that name.
    let named = ["/api/v1/secrets/{name}", "/api/v1/members/{principal}"];
    let of_its_own = |route: &Route| route.method == "PUT" && named.contains(&route.path.as_str());
    // Links are open to everyone who has them; `registry/official.rs` tests what they show.
    let linked = |route: &Route| route.path.starts_with("/r/{slug}/");
    let objects = routes()
        .into_iter()
        .filter(|route| route.path.contains('{') && !of_its_own(route) && !linked(route));
    for route in &objects.collect::<Vec<_>>() {
        let [foreign, missing] = fill(route, &theirs).unwrap_or_else(|| {
            panic!("`{} {}` is new; add its objects to `fill`", route.method, route.path)
        });
        seen += 1;
        let body = body(route);
        let ask = |key: &str, path: &str| {
            call(key, &route.method, &format!("{}{path}", ours.url), body.as_ref())
        };
        let what = format!("{} {}", route.method, route.path);
        // The answers are identical to the byte.
        let [refused, unknown] = [&foreign, &missing].map(|path| ask(&ours.admin, path));
        assert_eq!((refused.status, unknown.status), (404, 404), "{what}: a foreign key");
        assert_eq!(
            body_without_name(&refused, &foreign),
            body_without_name(&unknown, &missing),
            "{what}"
        );
        // The same with a key that may only read.
        let [refused, unknown] = [&foreign, &missing].map(|path| ask(&ours.reader, path));
        assert!([403, 404].contains(&refused.status), "{what}: {}", refused.status);
        assert_eq!(refused.status, unknown.status, "{what}: a key that reads");
        assert_eq!(
            body_without_name(&refused, &foreign),
            body_without_name(&unknown, &missing),
            "{what}"
        );
        // Expired keys of both sides get 401.
        for key in [&ours.expired, &theirs.expired] {
            assert_eq!(ask(key, &foreign).status, 401, "{what}: an expired key");
        }
    }
    assert!(seen >= 7, "{seen} routes have a parameter");
    assert_eq!(theirs.state(), before, "the other side has changed");
}

/// The control: objects of the own scope are accessible with the necessary rights.
#[test]
fn objects_of_the_own_scope_are_accessible_with_the_right() {
    let ours = Side::new();
    let id = &ours.key_id;
    let ask = |key: &str, method: &str, path: &str| {
        let body = (method == "POST").then(|| json!({}));
        call(key, method, &format!("{}/api/v1/keys/{path}", ours.url), body.as_ref()).status
    };
    assert_eq!(ask(&ours.reader, "GET", id), 403);
    assert_eq!(ask(&ours.reader, "DELETE", id), 403);
    assert_eq!(ask(&ours.reader, "GET", "self"), 200);
    assert_eq!(ask(&ours.admin, "GET", id), 200);
    // The successor would act as the principal of the rotated key.
    assert_eq!(ask(&ours.admin, "POST", &format!("{id}/rotate")), 403);
    assert_eq!(ask(&ours.admin, "DELETE", id), 204);
    let at = |method: &str, path: &str| {
        call(&ours.admin, method, &format!("{}/api/v1/{path}", ours.url), None).status
    };
    assert_eq!(at("DELETE", &format!("members/{}", ours.member)), 204);
    let project = ours.scope.rsplit('.').next().unwrap();
    assert_eq!(at("DELETE", &format!("projects/{project}")), 204);
    assert_eq!(at("GET", "keys/self"), 401, "the project's keys are still valid");
}

/// GW-29: every body of the API refuses unknown fields.
#[test]
fn every_request_body_refuses_unknown_fields() {
    let ours = Side::new();
    let before = ours.state();
    let mut seen = 0;
    for route in routes() {
        let Some(mut body) = body(&route).filter(|_| route.path.starts_with("/api/v1/")) else {
            continue;
        };
        seen += 1;
        assert_eq!(route.auth, "key", "{}", route.path);
        let path = match fill(&route, &ours) {
            Some([path, _]) => path,
            None => route.path.clone(),
        };
        for field in ["org_id", "role", "scopes", "owner", "id", "created_at"] {
            if body.get(field).is_some() {
                continue;
            }
            body[field] = json!("admin");
            let refused =
                call(&ours.admin, &route.method, &format!("{}{path}", ours.url), Some(&body));
            assert_eq!(
                (refused.status, &refused.json()["code"]),
                (400, &json!("INVALID_REQUEST")),
                "{path} {field}"
            );
            body.as_object_mut().unwrap().remove(field);
        }
    }
    assert!(seen >= 2, "{seen}");
    assert_eq!(ours.state(), before);
}

/// GW-30: another spelling of a path is not found, so it cannot bypass limits or checks.
#[test]
fn other_spellings_of_a_path_are_not_found() {
    let ours = Side::new();
    for path in
        ["/API/v1/keys", "/api/V1/keys", "/api/v1/keys/", "//api/v1/keys", "/api/v1/%6beys/"]
    {
        let authorization = format!("Bearer {}", ours.admin);
        let reply =
            send("GET", &format!("{}{path}", ours.url), &[("authorization", &authorization)], None);
        assert_eq!(reply.status, 404, "{path}");
    }
}
