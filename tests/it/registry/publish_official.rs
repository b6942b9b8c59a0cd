//! Publishing like the official registry's `mcp-publisher`, and how the official API shows the result.

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::support::cli::text;
use crate::support::http::{Reply, get, send};
use crate::support::server::{Server, Tenant};
use crate::support::upstream::scope_of;

pub(super) const OFFICIAL: &str = "io.modelcontextprotocol.registry/official";
pub(super) const OWN: &str = "ai.casys.pml/registry";
pub(super) const TOOLS: &str = "ai.casys.pml/tools";
pub(super) const PUBLISHER: &str = "io.modelcontextprotocol.registry/publisher-provided";

pub(super) fn tenant() -> Tenant {
    Server::shared().tenant_with_rights("execute,read,publish,admin")
}

pub(super) fn publish(tenant: &Tenant, server: &Value) -> Reply {
    call(&tenant.key, "POST", &format!("{}/v0.1/publish", tenant.url), Some(server))
}

#[track_caller]
pub(super) fn published(tenant: &Tenant, server: &Value) -> Value {
    let reply = publish(tenant, server);
    assert_eq!(reply.status, 200, "{}", text(&reply.body));
    reply.json()
}

pub(super) fn read(tenant: &Tenant, path: &str) -> Reply {
    let bearer = format!("Bearer {}", tenant.key);
    get(&format!("{}{path}", tenant.url), &[("authorization", &bearer)])
}

pub(super) fn versions(tenant: &Tenant, name: &str, query: &str) -> Reply {
    read(tenant, &format!("/v0.1/servers/{}/versions{query}", name.replace('/', "%2F")))
}

pub(super) fn minimal(name: &str, version: &str) -> Value {
    json!({
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": name, "description": "Keeps notes.", "version": version,
        "packages": [{
            "registryType": "npm", "identifier": "notes-mcp", "version": version,
            "transport": { "type": "stdio" },
        }],
    })
}

/// Typical server.json files, one for each revision of the schema, with all fields that clients use.
fn shapes(scope: &str) -> Vec<Value> {
    vec![
        // 2025-07-09: snake case, and a status set by the publisher.
        json!({
            "$schema": "https://static.modelcontextprotocol.io/schemas/2025-07-09/server.schema.json",
            "name": format!("{scope}/brave"), "description": "MCP server for Brave Search API integration",
            "status": "active", "website_url": "https://example.com/brave",
            "repository": { "url": "https://github.com/example/servers", "source": "github", "id": "b94b5f7e" },
            "version": "1.0.2",
            "packages": [{
                "registry_type": "npm", "registry_base_url": "https://registry.npmjs.org",
                "identifier": "@example/server-brave-search", "version": "1.0.2",
                "transport": { "type": "stdio" }, "runtime_hint": "npx",
                "package_arguments": [{ "type": "positional", "value_hint": "mode", "value": "serve" }],
                "environment_variables": [
                    { "name": "BRAVE_API_KEY", "description": "The key", "is_required": true, "is_secret": true },
                    { "name": "LOG_LEVEL", "default": "info", "choices": ["info", "debug"] },
                ],
            }],
        }),
        // 2025-09-29: camel case, named arguments with variables, an OCI image, publisher metadata.
        json!({
            "$schema": "https://static.modelcontextprotocol.io/schemas/2025-09-29/server.schema.json",
            "name": format!("{scope}/files"), "title": "Files",
            "description": "Model Context Protocol server for filesystem operations.",
            "websiteUrl": "https://example.com/files",
            "repository": { "url": "https://github.com/example/servers", "source": "github", "subfolder": "src/files" },
            "version": "1.0.2",
            "packages": [
                {
                    "registryType": "npm", "registryBaseUrl": "https://registry.npmjs.org",
                    "identifier": "@example/server-files", "version": "1.0.2", "runtimeHint": "npx",
                    "transport": { "type": "stdio" },
                    "runtimeArguments": [{ "type": "named", "name": "-y" }],
                    "packageArguments": [
                        { "type": "positional", "valueHint": "target_dir", "description": "Path to access", "default": "/srv", "isRepeated": true },
                        { "type": "named", "name": "--mode", "value": "{mode}", "variables": { "mode": { "choices": ["ro", "rw"], "default": "ro" } } },
                    ],
                    "environmentVariables": [{ "name": "LOG_LEVEL", "description": "Level", "default": "info", "placeholder": "debug" }],
                },
                {
                    "registryType": "oci", "registryBaseUrl": "https://docker.io", "identifier": "mcp/files", "version": "1.0.2",
                    "transport": { "type": "stdio" },
                    "runtimeArguments": [{
                        "type": "named", "name": "--mount", "value": "type=bind,src={source},dst=/project", "isRepeated": true,
                        "variables": { "source": { "format": "filepath", "isRequired": true } },
                    }],
                },
            ],
            "_meta": { PUBLISHER: {
                "tool": "ci-publisher", "version": "3.2.1", "build_info": { "commit": "a1b2c3", "ratio": 0.5, "nested": [null, true] },
            } },
        }),
        // 2025-10-17: icons, an MCPB bundle first, which `pml` cannot start, a package with its own port, and a remote.
        json!({
            "$schema": "https://static.modelcontextprotocol.io/schemas/2025-10-17/server.schema.json",
            "name": format!("{scope}/hybrid"), "title": "Hybrid", "description": "Local package and remote service",
            "icons": [
                { "src": "https://example.com/icon.svg", "mimeType": "image/svg+xml", "sizes": ["any"], "theme": "dark" },
                { "src": "https://example.com/icon.png", "mimeType": "image/png", "sizes": ["48x48", "96x96"] },
            ],
            "version": "1.5.0",
            "packages": [
                {
                    "registryType": "mcpb", "identifier": "https://github.com/example/h/releases/download/v1.5.0/h.mcpb",
                    "fileSha256": "fe333e598595000ae021bd27117db32ec69af6987f507ba7a63c90638ff633ce", "transport": { "type": "stdio" },
                },
                {
                    "registryType": "pypi", "identifier": "hybrid-mcp", "version": "1.5.0", "runtimeHint": "uvx",
                    "transport": { "type": "stdio" },
                    "packageArguments": [{ "type": "named", "name": "--port", "format": "number", "description": "Port", "default": "8080" }],
                },
                {
                    "registryType": "nuget", "identifier": "Hybrid.Mcp", "version": "1.5.0",
                    "transport": { "type": "streamable-http", "url": "http://localhost:{port}/mcp" },
                },
            ],
            "remotes": [{
                "type": "sse", "url": "https://mcp.example.com/sse",
                "headers": [{ "name": "X-API-Key", "description": "The key", "isRequired": true, "isSecret": true }],
            }],
        }),
        // 2025-12-11: a repository at GitLab, and an unknown field.
        json!({
            "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
            "name": format!("{scope}/clock"), "title": "Time – “now”", "description": "Tells the time, everywhere",
            "repository": { "url": "https://gitlab.com/example/time", "source": "gitlab" },
            "version": "2025.12.11",
            "packages": [{
                "registryType": "pypi", "registryBaseUrl": "https://pypi.org", "identifier": "time-mcp", "version": "2025.12.11",
                "transport": { "type": "stdio" }, "environmentVariables": [{ "name": "TZ", "format": "string" }],
            }],
            "somethingNew": { "kept": [1, 2.5, "three"] },
            "_meta": { PUBLISHER: { "com.example/listing": { "category": ["time"] } } },
        }),
    ]
}

/// A published server.json is returned unchanged in the answer, by version, and in lists.
#[test]
fn a_published_server_json_is_returned_unchanged() {
    let tenant = tenant();
    for server in shapes(&scope_of(&tenant)) {
        let name = server["name"].as_str().unwrap();
        let answer = published(&tenant, &server);
        assert_eq!(answer["server"], server, "{name}");
        let meta = &answer["_meta"][OFFICIAL];
        assert_eq!(
            (&meta["status"], &meta["isLatest"]),
            (&json!("active"), &json!(true)),
            "{name}"
        );
        // Publishing the same again changes nothing.
        assert_eq!(published(&tenant, &server)["_meta"][OFFICIAL], *meta, "{name}");
        let version = server["version"].as_str().unwrap();
        for path in ["/latest", &format!("/{version}")] {
            let reply = versions(&tenant, name, path);
            assert_eq!((reply.status, &reply.json()["server"]), (200, &server), "{name}{path}");
        }
        assert_eq!(versions(&tenant, name, "").json()["servers"][0]["server"], server, "{name}");
        let listed = read(&tenant, &format!("/v0.1/servers?search={name}")).json();
        assert_eq!(listed["servers"][0]["server"], server, "{name}");
        // The path of older clients.
        let old =
            read(&tenant, &format!("/v0/servers/{}/versions/latest", name.replace('/', "%2F")));
        assert_eq!((old.status, &old.json()["server"]), (200, &server), "{name}");
    }
}

/// The requests of `mcp-publisher`: it logs in with a key, publishes at `v0`, and reads the answer.
#[test]
fn mcp_publisher_logs_in_with_a_key_and_publishes() {
    let tenant = tenant();
    let json = [("content-type", "application/json"), ("accept", "application/json")];
    let login = |key: &str| {
        let body = json!({ "github_token": key }).to_string().into_bytes();
        send("POST", &format!("{}/v0/auth/github-at", tenant.url), &json, Some(body))
    };
    let reply = login(&tenant.key);
    assert_eq!((reply.status, reply.header("cache-control")), (200, "private, no-store"));
    let token = reply.json()["registry_token"].as_str().unwrap().to_owned();
    assert!(reply.json()["expires_at"].is_i64(), "{}", reply.json());
    let name = format!("{}/notes", scope_of(&tenant));
    let bearer = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
    let server = minimal(&name, "1.2.0");
    let reply = send(
        "POST",
        &format!("{}/v0/publish", tenant.url),
        &headers,
        Some(server.to_string().into_bytes()),
    );
    assert_eq!(reply.status, 200, "{}", text(&reply.body));
    assert_eq!(reply.json()["server"], server);
    // The login is refused for a key without the right `publish`, and for an invalid key.
    let reader = Server::shared().tenant_with_rights("read");
    assert_eq!(login(&reader.key).json()["code"], "FORBIDDEN");
    for key in ["", "ghp_canary", "pml_key_x\n", &"x".repeat(20_000)] {
        let reply = login(key);
        assert!([400, 401, 413].contains(&reply.status), "{}", reply.status);
        assert_eq!(reply.header("content-type"), "application/problem+json");
    }
    for (method, path) in [("POST", "/v0/publish"), ("POST", "/v0.1/publish")] {
        let body = server.to_string().into_bytes();
        let reply = send(method, &format!("{}{path}", tenant.url), &json, Some(body));
        assert_eq!(reply.status, 401, "{path} without a key");
    }
}

/// A server.json does not list tools. Without a list in its metadata no tool can be called, and the answer warns about it.
#[test]
fn tools_can_be_called_only_if_the_publisher_lists_them() {
    let tenant = tenant();
    let name = format!("{}/notes", scope_of(&tenant));
    let answer = published(&tenant, &minimal(&name, "1.0.0"));
    let warning = answer["_meta"][OWN]["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains("no tools are listed") && warning.contains("pml publish --mcp"),
        "{warning}"
    );
    assert_eq!(read(&tenant, "/mcp/notes").json()["tools"], json!([]));
    assert_eq!(read(&tenant, "/mcp/notes:add").status, 404);
    let mut listed = minimal(&name, "1.1.0");
    let tool = json!({ "name": "add", "description": "Adds a note.", "inputSchema": { "type": "object" } });
    listed["_meta"] = json!({ PUBLISHER: { TOOLS: [tool] } });
    let answer = published(&tenant, &listed);
    assert_eq!((&answer["server"], answer["_meta"][OWN].get("warnings")), (&listed, None));
    assert_eq!(read(&tenant, "/mcp/notes:add").json()["tools"], json!([tool]));
    assert_eq!(read(&tenant, "/mcp/notes@1.1.0").json()["server_json"], listed);
}

/// An invalid server.json is refused with the reason, and nothing is published.
#[test]
fn an_invalid_server_json_is_refused_with_the_reason() {
    let tenant = tenant();
    let scope = scope_of(&tenant);
    let name = format!("{scope}/notes");
    let good = minimal(&name, "1.0.0");
    for (field, value, status, why) in [
        ("name", json!("io.github.acme/notes"), 403, "name the server"),
        ("name", json!("pml.mcp/notes"), 403, "name the server"),
        ("name", json!(scope), 400, "`name`"),
        ("name", json!(format!("{scope}/../x")), 400, "name"),
        ("name", json!(format!("{scope}/pml")), 400, "reserved"),
        ("name", Value::Null, 400, "`name`"),
        ("version", json!("1.0.0-beta"), 400, "three numbers"),
        ("version", json!("latest"), 400, "three numbers"),
        ("description", json!(""), 400, "`description`"),
        ("description", json!("x".repeat(101)), 400, "at most 100"),
        ("packages", json!([]), 400, "neither started nor reached"),
        ("/packages/0/version", json!("latest"), 400, "no immutable version"),
        ("_meta", json!({ PUBLISHER: { TOOLS: "add" } }), 400, TOOLS),
        ("_meta", json!({ PUBLISHER: { "blob": "x".repeat(70_000) } }), 400, "at most 65536"),
    ] {
        let mut server = good.clone();
        match field.strip_prefix('/') {
            Some(_) => *server.pointer_mut(field).unwrap() = value.clone(),
            None => server[field] = value.clone(),
        }
        let reply = publish(&tenant, &server);
        let shown = text(&reply.body).to_owned();
        assert_eq!(reply.status, status, "{field} {value}: {shown}");
        assert_eq!(reply.header("content-type"), "application/problem+json");
        let body = reply.json();
        assert!(body["detail"].as_str().unwrap().contains(why), "{field}: {shown}");
        assert_eq!(body["error"], body["detail"]);
    }
    assert_eq!(versions(&tenant, &name, "").status, 404, "a version was published");
    published(&tenant, &good);
    let mut other = good.clone();
    other["title"] = json!("Other");
    let reply = publish(&tenant, &other);
    assert_eq!((reply.status, &reply.json()["code"]), (409, &json!("CONFLICT")));
    // It shares names, audit log and rights with `POST /api/v1/servers`.
    let audit = call(&tenant.key, "GET", &format!("{}/api/v1/audit", tenant.url), None).json();
    let events = audit["events"].as_array().unwrap_or_else(|| panic!("{audit:#}"));
    assert!(
        events.iter().any(|it| it["action"] == "server.publish" && it["target"] == "notes"),
        "{audit:#}"
    );
    let reader = Server::shared().tenant_with_rights("read");
    let reply = publish(&reader, &minimal(&format!("{}/x", scope_of(&reader)), "1.0.0"));
    assert_eq!((reply.status, &reply.json()["code"]), (403, &json!("FORBIDDEN")));
}

/// A server.json that is published with a server must describe the same package.
#[test]
fn a_server_json_must_describe_the_published_package() {
    let tenant = tenant();
    let server = minimal("io.github.acme/notes", "1.0.0");
    let mut body = json!({
        "name": "notes", "type": "stdio", "description": "Keeps notes.", "version": "1.0.0",
        "install": { "command": "npx", "args": ["-y", "evil@1.0.0"] },
        "tools": [{ "name": "add", "inputSchema": { "type": "object" } }],
        "server_json": server,
    });
    let url = format!("{}/api/v1/servers", tenant.url);
    let reply = call(&tenant.key, "POST", &url, Some(&body));
    assert_eq!(reply.status, 400);
    assert!(text(&reply.body).contains("a different package"), "{}", text(&reply.body));
    body["install"]["args"] = json!(["-y", "notes-mcp@1.0.0"]);
    assert_eq!(call(&tenant.key, "POST", &url, Some(&body)).status, 201);
    let name = format!("{}/notes", scope_of(&tenant));
    let found = versions(&tenant, &name, "/latest").json();
    // It has the name under which it is found; its original name is in the metadata.
    let mut expected = server.clone();
    expected["name"] = json!(name);
    assert_eq!(found["server"], expected);
    assert_eq!(found["_meta"][OWN]["publishedAs"], "io.github.acme/notes");
}
