//! Writes entries of tenants as the serving role does.

use protocol::{EntryType, Fqdn, Integrity, RegistryEntry, Routing, Scope, ToolId, Visibility};
use registry::Tenant;
use serde_json::{Value, json};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor as _};

use crate::database::{Database, act_as};

/// A server that a tenant publishes.
pub(crate) struct Published<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) namespace: &'a str,
    pub(crate) visibility: Visibility,
    pub(crate) owner: &'a str,
    /// Names and descriptions.
    pub(crate) tools: &'a [(&'a str, &'a str)],
}

impl<'a> Published<'a> {
    /// Describes a server that is visible to the whole project.
    pub(crate) fn new(
        tenant: &'a Tenant,
        namespace: &'a str,
        tools: &'a [(&'a str, &'a str)],
    ) -> Self {
        Self { tenant, namespace, visibility: Visibility::Project, owner: "someone", tools }
    }

    /// Sets the visibility and the owner.
    pub(crate) fn seen_by(mut self, visibility: Visibility, owner: &'a str) -> Self {
        (self.visibility, self.owner) = (visibility, owner);
        self
    }

    /// Writes the server to the database.
    pub(crate) async fn write(self, database: &Database) {
        let mut connection = database.app().await;
        let scope = self.tenant.scope().expect("somebody publishes").clone();
        act_as(&mut connection, scope.as_str(), self.owner).await;
        self.insert(&mut connection, &scope).await.expect("it is published");
        connection.execute("commit").await.expect("it is committed");
    }

    /// Writes the server in a given transaction, which may act as another tenant.
    pub(crate) async fn insert(
        &self,
        connection: &mut PgConnection,
        scope: &Scope,
    ) -> Result<(), sqlx::Error> {
        let all: Vec<Value> = self.tools.iter().map(|(name, text)| tool(name, text)).collect();
        let server = Fqdn::server(scope.clone(), self.namespace).unwrap();
        let about = format!("Serves {}", self.namespace);
        let (content, integrity) = stored(&server, &about, all);
        sqlx::query(
            "insert into mcp_servers
                (org, project, namespace, content, integrity, visibility, owner)
            values ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(scope.org())
        .bind(scope.project())
        .bind(self.namespace)
        .bind(content)
        .bind(integrity)
        .bind(self.visibility.as_str())
        .bind(self.owner)
        .execute(&mut *connection)
        .await?;
        for (name, text) in self.tools {
            let id = ToolId::new(self.namespace, name).unwrap();
            let (content, integrity) =
                stored(&Fqdn::of_tool(scope.clone(), &id), text, vec![tool(name, text)]);
            sqlx::query(
                "insert into tools
                    (org, project, namespace, name, content, integrity, visibility, owner)
                values ($1, $2, $3, $4, $5, $6, $7, $8)",
            )
            .bind(scope.org())
            .bind(scope.project())
            .bind(self.namespace)
            .bind(name)
            .bind(content)
            .bind(integrity)
            .bind(self.visibility.as_str())
            .bind(self.owner)
            .execute(&mut *connection)
            .await?;
        }
        Ok(())
    }
}

fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

/// Returns the stored content and hash of an entry, computed from its wire form.
fn stored(fqdn: &Fqdn, description: &str, tools: Vec<Value>) -> (String, String) {
    let entry = RegistryEntry {
        fqdn: fqdn.to_string(),
        kind: EntryType::Http,
        description: description.to_owned(),
        install: None,
        proxy_to: Some("https://upstream.example/mcp".to_owned()),
        env_required: Vec::new(),
        tools: tools.into_iter().map(|tool| serde_json::from_value(tool).unwrap()).collect(),
        warnings: Vec::new(),
        server_version: None,
        server_json: None,
        capability: None,
        deprecated: None,
        routing: Routing::Server,
        integrity: Integrity::of(b""),
    };
    (Value::Object(entry.content()).to_string(), entry.content_integrity().to_string())
}

/// Replaces the content of a published tool, with a matching hash.
pub(crate) async fn change(database: &Database, tenant: &Tenant, id: &ToolId, description: &str) {
    let name = Fqdn::of_tool(tenant.scope().expect("somebody publishes").clone(), id);
    let (content, integrity) = stored(&name, description, vec![tool(id.action(), description)]);
    let scope = name.scope();
    sqlx::query(
        "update tools set content = $5, integrity = $6
        where org = $1 and project = $2 and namespace = $3 and name = $4",
    )
    .bind(scope.org())
    .bind(scope.project())
    .bind(id.namespace())
    .bind(id.action())
    .bind(content)
    .bind(integrity)
    .execute(&mut database.superuser().await)
    .await
    .expect("the superuser may");
}

/// Publishes one server of each visibility in `acme.web`, `acme.shop` and `other.web`, with the canary in every name.
pub(crate) async fn canaries(database: &Database) -> [Tenant; 3] {
    let tenants = database.tenants(["acme.web", "acme.shop", "other.web"]).await;
    for (tenant, name) in tenants.iter().zip(["web", "shop", "foreign"]) {
        for visibility in
            [Visibility::Private, Visibility::Project, Visibility::Org, Visibility::Public]
        {
            let namespace = format!("canary_{name}_{}", visibility.as_str());
            let tools = [("find_canary", "Finds the canary that sings")];
            Published::new(tenant, &namespace, &tools)
                .seen_by(visibility, "alice")
                .write(database)
                .await;
        }
    }
    tenants
}

/// Runs a statement as a superuser, which bypasses row-level security.
pub(crate) async fn tamper(database: &Database, statement: &str) -> u64 {
    let mut connection = database.superuser().await;
    let done = connection.execute(AssertSqlSafe(statement.to_owned())).await;
    done.expect("the superuser may").rows_affected()
}
