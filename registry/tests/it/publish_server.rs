//! MCP servers of tenants: one publisher wins a race, versions are immutable, entries are isolated.

use std::sync::Arc;

use protocol::{EntryType, Install, ResultMode, Routing, ToolDescriptor, Visibility};
use registry::{
    CatalogServer, CatalogTool, NewServer, Registry, RegistryError, ResolvedTool, Tenant,
    VersionUpdate,
};
use serde_json::json;
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::task::JoinSet;

use crate::database::{Database, act_as, is_not_found, sqlstate};
use crate::publish::capability;

fn member(principal: &str) -> Tenant {
    Tenant::member("acme.web".parse().unwrap(), principal.parse().unwrap())
}

/// A server with claims about routing and effects that a tenant's server is not trusted with.
pub(crate) fn server(namespace: &str, command: &str) -> NewServer {
    let descriptor = ToolDescriptor {
        name: "add".to_owned(),
        description: "Adds".to_owned(),
        input_schema: json!({ "type": "object" }),
        output_schema: None,
        annotations: Some(json!({ "readOnlyHint": true })),
    };
    let server = CatalogServer {
        namespace: namespace.to_owned(),
        kind: EntryType::Stdio,
        description: "Keeps notes.".to_owned(),
        install: Some(Install { command: command.to_owned(), ..Install::default() }),
        proxy_to: None,
        env_required: Vec::new(),
        routing: Some(Routing::Server),
        warnings: Vec::new(),
        result: ResultMode::Json,
        server_json: None,
        tools: vec![CatalogTool { descriptor, read_only: true, deterministic: true }],
    };
    NewServer { server, version: Some("1.0.0".parse().unwrap()), visibility: None }
}

async fn resolved(registry: &Registry, tenant: &Tenant, id: &str) -> Option<Arc<ResolvedTool>> {
    let id = id.parse().unwrap();
    let mut found = registry.resolve(tenant, std::slice::from_ref(&id)).await.unwrap();
    found.tools.pop()
}

/// RG-03: of fifty concurrent publishers of a version one succeeds. Claims reserved to the operator have no effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_concurrent_publishers_one_succeeds() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = Arc::new(database.registry().await);
    let mut racers = JoinSet::new();
    for number in 0..50 {
        let registry = Arc::clone(&registry);
        racers.spawn(async move {
            let command = format!("racer{number}");
            let made = registry.publish_server(&member("ann"), server("notes", &command)).await;
            (command, made)
        });
    }
    let mut winners = Vec::new();
    for (command, made) in racers.join_all().await {
        match made {
            Ok(made) => winners.push((command, made)),
            Err(RegistryError::Conflict(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    let [(command, made)] = &winners[..] else { panic!("{winners:?}") };
    assert!(made.new && made.routing == Routing::Client);
    let found = registry.entry(&member("ann"), &"notes".parse().unwrap()).await.unwrap();
    assert_eq!(&found.entry.install.unwrap().command, command);
    let tool = resolved(&registry, &member("ann"), "notes:add").await.unwrap();
    assert_eq!((tool.routing, tool.result), (Routing::Client, ResultMode::Text));
    assert!(!tool.read_only && !tool.deterministic && !tool.eager);
}

/// RG-14: of a capability and a server whose tool has the same id, published at the same time, one is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_capability_and_a_tool_cannot_take_an_id_at_once() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = Arc::new(database.registry().await);
    for number in 0..60 {
        // No name looks like another one: `0` and `1` count as letters.
        let namespace = format!("pair{number}").replace('0', "x").replace('1', "y");
        let ann = member("ann");
        let program = capability(&format!("{namespace}:add"), "return 1");
        let (of_server, of_program) = tokio::join!(
            registry.publish_server(&ann, server(&namespace, "npx")),
            registry.publish(&ann, program),
        );
        let refused = match (of_server.map(drop), of_program.map(drop)) {
            (Ok(()), Err(refused)) | (Err(refused), Ok(())) => refused,
            both => panic!("{namespace}: {both:?}"),
        };
        assert!(matches!(refused, RegistryError::Conflict(_)), "{namespace}: {refused}");
    }
}

/// RG-03, RG-06: no role can change a version, and the policies isolate tenants and principals.
#[tokio::test]
async fn versions_are_immutable_and_isolated() {
    let database = Database::migrated().await;
    database.tenants(["acme.web", "other.web"]).await;
    let registry = database.registry().await;
    let mut own = server("diary", "npx");
    own.visibility = Some(Visibility::Private);
    registry.publish_server(&member("ann"), own).await.unwrap();
    registry.publish_server(&member("ann"), server("notes", "npx")).await.unwrap();
    for statement in [
        "update server_versions set content = '{}'",
        "update server_versions set version = '1.0.1'",
        "delete from server_versions",
    ] {
        let mut app = database.app().await;
        act_as(&mut app, "acme.web", "ann").await;
        assert_eq!(sqlstate(app.execute(statement).await), "42501", "the gateway: {statement}");
        let mut owner = database.owner().await;
        act_as(&mut owner, "acme.web", "ann").await;
        let changed = owner.execute(statement).await;
        // Rows that no policy shows to the owner do not change either.
        if changed.as_ref().is_ok_and(|done| done.rows_affected() == 0) {
            continue;
        }
        assert_eq!(sqlstate(changed), "42501", "the owner: {statement}");
    }
    let mut app = database.app().await;
    for (scope, principal, seen) in
        [("acme.web", "ann", 2), ("acme.web", "bob", 1), ("other.web", "ann", 0), ("", "", 0)]
    {
        for table in ["published_servers", "server_versions"] {
            act_as(&mut app, scope, principal).await;
            let count: i64 =
                sqlx::query_scalar(AssertSqlSafe(format!("select count(*) from {table}")))
                    .fetch_one(&mut app)
                    .await
                    .unwrap();
            assert_eq!(count, seen, "{table} {scope} {principal}");
            app.execute("rollback").await.unwrap();
        }
        if scope == "acme.web" {
            continue;
        }
        act_as(&mut app, scope, principal).await;
        let hidden = app.execute("update published_servers set visibility = 'public'").await;
        assert_eq!(hidden.unwrap().rows_affected(), 0, "{scope}");
        let forged = "insert into published_servers (org, project, namespace, visibility, owner)
            values ('acme', 'web', 'forged', 'project', 'x')";
        assert_eq!(sqlstate(app.execute(forged).await), "42501", "{scope}");
        app.execute("rollback").await.unwrap();
    }
}

/// RG-14: an entry of another principal with the same id cannot shadow one's own entry.
#[tokio::test]
async fn an_own_entry_cannot_be_shadowed() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let mut own = server("diary", "npx");
    own.visibility = Some(Visibility::Private);
    registry.publish_server(&member("ann"), own).await.unwrap();
    // Bob cannot see the server, but its name is taken. A capability with its tool's id is not resolved for Ann.
    let taken = registry.publish_server(&member("bob"), server("diary", "evil")).await;
    assert!(matches!(taken, Err(RegistryError::Conflict(_))), "{taken:?}");
    let capability = registry::NewCapability {
        id: "diary:add".parse().unwrap(),
        version: None,
        visibility: Some(Visibility::Project),
        description: "Takes its place.".to_owned(),
        input_schema: json!({ "type": "object" }),
        code: "return 1".to_owned(),
        calls: Vec::new(),
        mcp_deps: Vec::new(),
        routing: Routing::Server,
    };
    registry.publish(&member("bob"), capability).await.unwrap();
    let hers = resolved(&registry, &member("ann"), "diary:add").await.unwrap();
    assert_eq!((hers.kind, hers.routing), (EntryType::Stdio, Routing::Client));
    let his = resolved(&registry, &member("bob"), "diary:add").await.unwrap();
    assert_eq!(his.kind, EntryType::Deno);
    let unknown =
        registry.update_server_version(&member("bob"), "diary", None, VersionUpdate::Yank).await;
    assert!(is_not_found(unknown));
}
