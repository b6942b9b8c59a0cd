//! Visibility of entries: the policies and the search agree with one rule in the database.

use std::collections::BTreeSet;

use registry::DiscoverQuery;
use sqlx::Row as _;
use sqlx::postgres::PgConnection;

use crate::database::{Database, act_as};
use crate::isolation::{CALLERS, is_of_org, tenant, visible};
use crate::published::canaries;

/// The input of the rule for an entry: organisation, project, visibility, owner.
type Placement = [String; 4];

async fn is_shown(
    connection: &mut PgConnection,
    [asker_org, asker_project, asker]: [&str; 3],
    [org, project, visibility, owner]: &Placement,
) -> bool {
    sqlx::query_scalar("select visible_to($1, $2, $3, $4, $5, $6, $7)")
        .bind(asker_org)
        .bind(asker_project)
        .bind(asker)
        .bind(org)
        .bind(project)
        .bind(visibility)
        .bind(owner)
        .fetch_one(connection)
        .await
        .unwrap()
}

/// Compares the rule, the policies and the audiences of the search indexes for each caller and entry.
#[tokio::test]
async fn rule_policies_and_audiences_agree() {
    let database = Database::seeded().await;
    canaries(&database).await;
    let registry = database.registry().await;
    let mut all = database.superuser().await;
    let entries: Vec<(String, Placement)> = sqlx::query(
        "select namespace, org, project, visibility, owner from mcp_servers
        where namespace like 'canary%' order by namespace",
    )
    .fetch_all(&mut all)
    .await
    .unwrap()
    .iter()
    .map(|row| (row.get(0), [row.get(1), row.get(2), row.get(3), row.get(4)]))
    .collect();
    assert_eq!(entries.len(), 12);
    let mut app = database.app().await;
    for (scope, principal) in CALLERS {
        let who = format!("`{scope}` `{principal}`");
        let expected = visible(scope, principal);
        let (org, project) = scope.split_once('.').unwrap_or_default();
        let mut ruled = BTreeSet::new();
        for (namespace, placement) in &entries {
            if is_shown(&mut all, [org, project, principal], placement).await {
                ruled.insert(namespace.clone());
            }
        }
        assert_eq!(ruled, expected, "the rule for {who}");

        act_as(&mut app, scope, principal).await;
        let policed: Vec<String> =
            sqlx::query_scalar("select namespace from mcp_servers where namespace like 'canary%'")
                .fetch_all(&mut app)
                .await
                .unwrap();
        sqlx::query("commit").execute(&mut app).await.unwrap();
        assert_eq!(BTreeSet::from_iter(policed), expected, "the policies for {who}");

        // A pattern over all namespaces finds every indexed entry, and none of other organisations.
        let caller = tenant(scope, principal);
        let indexed = DiscoverQuery::Pattern("*canary*".to_owned());
        let indexed = registry.discover(&caller, &indexed, 100).await.unwrap();
        let indexed: BTreeSet<String> =
            indexed.iter().map(|tool| tool.id.namespace().to_owned()).collect();
        let near: BTreeSet<String> =
            expected.iter().filter(|name| is_of_org(scope, name)).cloned().collect();
        assert_eq!(indexed, near, "the audiences for {who}");
        let shipped = DiscoverQuery::Pattern("git:*".to_owned());
        assert!(!registry.discover(&caller, &shipped, 100).await.unwrap().is_empty(), "{who}");
    }
}

/// Deleted entries and entries with an unknown visibility are not visible.
#[tokio::test]
async fn unknown_visibilities_show_nothing() {
    let database = Database::migrated().await;
    let mut all = database.superuser().await;
    for word in ["deleted", "", "PUBLIC", "everybody"] {
        let placement = ["acme", "web", word, "alice"].map(str::to_owned);
        assert!(!is_shown(&mut all, ["acme", "web", "alice"], &placement).await, "{word}");
    }
}

/// Postgres inlines the rule into queries and policies. As a function call it would prevent index scans.
#[tokio::test]
async fn the_rule_is_inlined() {
    let database = Database::migrated().await;
    let mut app = database.app().await;
    act_as(&mut app, "acme.web", "alice").await;
    for table in ["mcp_servers", "tools", "capabilities", "server_versions", "pml_registry"] {
        let explain = format!(
            "explain (verbose) select from {table}
            where visible_to('acme', 'web', 'alice', org, project, visibility, owner)"
        );
        let plan: Vec<String> =
            sqlx::query_scalar(sqlx::AssertSqlSafe(explain)).fetch_all(&mut app).await.unwrap();
        let plan = plan.join("\n");
        assert!(plan.contains("current_setting('app.org'"), "the policy is in {plan}");
        assert!(plan.contains("'acme'"), "the rule is in {plan}");
        assert!(!plan.contains("visible"), "{plan}");
    }
}
