//! Resolution of a program's tool ids: own scope first, one query, all unknown ids reported.

use protocol::{EntryType, ResultMode, Routing, ToolId, Visibility};
use registry::{RegistryError, Tenant};
use sqlx::{AssertSqlSafe, Executor as _};

use crate::cluster;
use crate::database::Database;
use crate::published::{Published, tamper};

fn ids<const N: usize>(texts: [&str; N]) -> Vec<ToolId> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[tokio::test]
async fn the_own_scope_takes_precedence_over_the_catalog() {
    let database = Database::seeded().await;
    let [web, shop] = database.tenants(["acme.web", "acme.shop"]).await;
    Published::new(&web, "filesystem", &[("read_file", "Ours")]).write(&database).await;
    let registry = database.registry().await;
    let wanted = ids(["filesystem:read_file", "filesystem:write_file"]);

    let ours = registry.resolve(&web, &wanted).await.unwrap();
    let [read, write] = &ours.tools[..] else { panic!("{ours:?}") };
    assert_eq!(read.fqdn.unpinned().to_string(), "acme.web.filesystem.read_file");
    assert_eq!((read.kind, read.descriptor.description.as_str()), (EntryType::Http, "Ours"));
    assert_eq!(read.proxy_to.as_deref(), Some("https://upstream.example/mcp"));
    assert_eq!(write.fqdn.unpinned().to_string(), "pml.mcp.filesystem.write_file");

    for tenant in [&shop, &Tenant::anonymous()] {
        let theirs = registry.resolve(tenant, &wanted).await.unwrap();
        assert_eq!(theirs.tools.len(), 2);
        for tool in &theirs.tools {
            assert_eq!(tool.fqdn.scope().as_str(), "pml.mcp");
            assert_eq!((tool.kind, tool.routing), (EntryType::Stdio, Routing::Client));
            assert_eq!(tool.result, ResultMode::Text);
            assert_eq!(tool.fqdn.hash(), Some(&tool.integrity.short()));
        }
    }
}

/// A private tool neither hides the public one from other principals nor is visible to them.
#[tokio::test]
async fn a_private_tool_is_visible_only_to_its_owner() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    Published::new(&web, "filesystem", &[("read_file", "Alice's")])
        .seen_by(Visibility::Private, "alice")
        .write(&database)
        .await;
    let registry = database.registry().await;
    for (principal, scope) in [("alice", "acme.web"), ("bob", "pml.mcp")] {
        let caller = Tenant::member("acme.web".parse().unwrap(), principal.parse().unwrap());
        let resolved = registry.resolve(&caller, &ids(["filesystem:read_file"])).await.unwrap();
        assert_eq!(resolved.tools[0].fqdn.scope().as_str(), scope, "{principal}");
    }
}

#[tokio::test]
async fn all_unknown_tools_are_reported() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    Published::new(&web, "deploys", &[("start_deploy", "")]).write(&database).await;
    let registry = database.registry().await;
    let wanted = ids([
        "zzz:qqq",
        "filesystem:read_fil",
        "git:git_status",
        "deploys:start_deplyo",
        "filesystem:read_fil",
        "time:get_current_time",
    ]);
    let resolved = registry.resolve(&web, &wanted).await.unwrap();
    let known: Vec<&str> = resolved.tools.iter().map(|tool| tool.id.as_str()).collect();
    assert_eq!(known, ["git:git_status", "time:get_current_time"]);
    assert!(resolved.get(&wanted[2]).is_some() && resolved.get(&wanted[0]).is_none());
    let missing: Vec<&str> = resolved.missing.iter().map(|tool| tool.id.as_str()).collect();
    assert_eq!(missing, ["deploys:start_deplyo", "filesystem:read_fil", "zzz:qqq"]);
    let suggested = |index: usize| resolved.missing[index].suggestions.first().map(ToolId::as_str);
    assert_eq!(suggested(0), Some("deploys:start_deploy"));
    assert_eq!(suggested(1), Some("filesystem:read_file"));
    assert_eq!(resolved.missing[2].suggestions, []);
    assert!(resolved.missing.iter().all(|tool| tool.suggestions.len() <= 3));
}

/// A program may name thousands of unknown tools: all are reported, the first few with similar names.
#[tokio::test]
async fn thousands_of_unknown_tools_are_cheap() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let wanted: Vec<ToolId> =
        (0..4_000).map(|n| format!("filesystem:read_fil{n:04}").parse().unwrap()).collect();
    let resolved = registry.resolve(&Tenant::anonymous(), &wanted).await.unwrap();
    assert_eq!(resolved.missing.len(), wanted.len());
    let helped = resolved.missing.iter().filter(|tool| !tool.suggestions.is_empty()).count();
    assert_eq!(helped, 8);
    assert_eq!(resolved.missing[0].suggestions[0].as_str(), "filesystem:read_file");
}

#[tokio::test]
async fn an_empty_list_resolves_to_nothing() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let resolved = registry.resolve(&Tenant::anonymous(), &[]).await.unwrap();
    assert_eq!(resolved, registry::Resolved::default());
}

/// All tools of a program are resolved with one query.
#[tokio::test]
async fn a_program_is_resolved_in_one_query() {
    let database = Database::seeded().await;
    let name = database.name();
    let set = format!("alter database {name} set log_statement = 'all'");
    database.superuser().await.execute(AssertSqlSafe(set)).await.unwrap();
    let registry = database.registry().await;
    let catalog = registry::shipped_catalog();
    let all: Vec<ToolId> = catalog
        .iter()
        .flat_map(|server| {
            server.tools.iter().map(|tool| ToolId::new(&server.namespace, &tool.descriptor.name))
        })
        .collect::<Result<_, _>>()
        .unwrap();
    assert!(all.len() > 40, "{}", all.len());
    let mut wanted = all.clone();
    wanted.extend(ids(["unknown:one", "unknown:two"]));
    // Writes unique marks to the log before and after.
    let marks = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    let mut marker = database.superuser().await;
    let mark = |id: uuid::Uuid| AssertSqlSafe(format!("select '{id}'"));
    marker.execute(mark(marks[0])).await.unwrap();
    let resolved = registry.resolve(&Tenant::anonymous(), &wanted).await.unwrap();
    marker.execute(mark(marks[1])).await.unwrap();
    assert_eq!((resolved.tools.len(), resolved.missing.len()), (all.len(), 2));

    let log = cluster::shared_log();
    let between = log.split_once(&marks[0].to_string()).unwrap().1;
    let between = between.split_once(&marks[1].to_string()).unwrap().0;
    assert_eq!(between.matches("with wanted as").count(), 1, "{between}");
}

#[tokio::test]
async fn a_tampered_tool_is_not_resolved() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let wanted = ids(["git:git_status"]);
    // The stored content is verified at each call.
    registry.resolve(&Tenant::anonymous(), &wanted).await.unwrap();
    let changed = tamper(
        &database,
        "update tools set content = replace(content, 'mcp-server-git', 'mcp-server-gti')
        where tool_id = 'git:git_status'",
    )
    .await;
    assert_eq!(changed, 1);
    let refused = registry.resolve(&Tenant::anonymous(), &wanted).await.unwrap_err();
    assert!(matches!(refused, RegistryError::IntegrityMismatch(_)), "{refused}");
    // Other tools are not affected.
    registry.resolve(&Tenant::anonymous(), &ids(["git:git_log"])).await.unwrap();
}
