//! Real HTTP MCP servers, and their entries in a gateway's registry.

use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::PATIENCE;
use super::guard::{self, Guarded};
use super::http::get;
use super::mcp_servers::{CLIENTS, PYTHON, node_22, npm, python};
use super::server::{Installation, Tenant};

/// A running fixture server, `everything.py` or `everything.mjs`.
pub(crate) struct Everything {
    program: Arc<Guarded>,
    /// Its MCP endpoint.
    pub(crate) url: String,
}

impl Everything {
    /// Starts the server on the Python SDK.
    pub(crate) fn start() -> Self {
        let mut command = Command::new(python(PYTHON).join("python"));
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/python/everything.py"));
        Self::started(command)
    }

    /// Starts the server on the TypeScript SDK, which also supports subscriptions of 2026-07-28.
    pub(crate) fn in_typescript() -> Self {
        let mut command = Command::new(node_22());
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/clients/everything.mjs"));
        command.arg(npm(CLIENTS));
        Self::started(command)
    }

    fn started(mut command: Command) -> Self {
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let log = guard::folder("u").join("log");
        let program = Guarded::start(&command, &log);
        let Some(url) = program.line(PATIENCE, |line| line.starts_with("http://")) else {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            panic!("the fixture server did not start:\n{log}");
        };
        Self { program, url }
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        self.program.stop();
    }
}

/// Returns the scope of a tenant, `org.project`.
#[track_caller]
pub(crate) fn scope_of(tenant: &Tenant) -> String {
    let bearer = format!("Bearer {}", tenant.key);
    let own =
        get(&format!("{}/api/v1/keys/self", tenant.url), &[("authorization", &bearer)]).json();
    own["scope"].as_str().expect("a key has a scope").to_owned()
}

/// Returns the host of a URL in the form for the hosts of a secret.
#[track_caller]
pub(crate) fn host_of(url: &str) -> String {
    let bare = url.strip_prefix("http://").expect("the servers of tests speak plain HTTP");
    format!("http://{}", bare.split('/').next().unwrap_or_default())
}

/// An entry for a server of the registry, which is inserted directly into the database.
pub(crate) struct Entry<'a> {
    /// `org.project`.
    pub(crate) scope: &'a str,
    /// Its namespace.
    pub(crate) namespace: &'a str,
    /// The fields that depend on its type.
    pub(crate) content: Value,
    /// Its tools, as MCP describes them.
    pub(crate) tools: Vec<Value>,
    /// The routing of its row; with `None`, the rules decide.
    pub(crate) routing: Option<&'a str>,
}

impl<'a> Entry<'a> {
    /// Describes an HTTP server that is called by the gateway.
    pub(crate) fn http(scope: &'a str, namespace: &'a str, url: &str) -> Self {
        let content = json!({ "type": "http", "description": "Test", "proxy_to": url });
        Self { scope, namespace, content, tools: Vec::new(), routing: Some("server") }
    }

    /// Declares that it needs a secret.
    pub(crate) fn needs(mut self, variable: &str) -> Self {
        self.content["env_required"] = json!([variable]);
        self
    }

    /// Inserts the entry.
    pub(crate) fn publish(self, installation: &Installation) {
        installation.sql(&self.statements());
    }

    /// Returns the SQL that inserts the entry.
    pub(crate) fn statements(self) -> String {
        let (org, project) = self.scope.split_once('.').expect("a scope has two parts");
        let stored = |name: &str, tools: &[Value]| {
            let mut content = self.content.clone();
            content["fqdn"] = json!(name);
            content["tools"] = json!(tools);
            // The hash is that of the canonical form.
            content.sort_all_objects();
            let content = content.to_string();
            let hash = data_encoding::BASE64.encode(&Sha256::digest(content.as_bytes()));
            format!("$c${content}$c$, 'sha256-{hash}'")
        };
        let (scope, namespace) = (self.scope, self.namespace);
        let routing = self.routing.map_or("null".to_owned(), |routing| format!("'{routing}'"));
        let whole = stored(&format!("{scope}.{namespace}"), &self.tools);
        let mut sql = format!(
            "insert into mcp_servers (org, project, namespace, content, integrity, routing, visibility, owner)
                values ('{org}', '{project}', '{namespace}', {whole}, {routing}, 'project', 'operator');"
        );
        for tool in &self.tools {
            let name = tool["name"].as_str().expect("a tool has a name");
            let one = stored(&format!("{scope}.{namespace}.{name}"), std::slice::from_ref(tool));
            sql += &format!(
                "insert into tools (org, project, namespace, name, content, integrity, visibility, owner)
                    values ('{org}', '{project}', '{namespace}', '{name}', {one}, 'project', 'operator');"
            );
        }
        sql
    }
}
