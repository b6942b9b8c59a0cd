//! Who may see an entry: one rule in the database, which its policies and the search follow.

use std::collections::BTreeSet;

use registry::DiscoverQuery;
use sqlx::Row as _;
use sqlx::postgres::PgConnection;

use crate::database::{Database, act_as};
use crate::isolation::{CALLERS, of_org, tenant, visible};
use crate::published::canaries;

/// An entry as the rule sees it: organisation, project, visibility, owner.
type Placement = [String; 4];

async fn shows(
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

/// The rule, the policies and the audiences of the search's indexes, for each caller and each entry.
#[tokio::test]
async fn the_rule_the_policies_and_the_audiences_agree() {
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
            if shows(&mut all, [org, project, principal], placement).await {
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

        // A pattern of all namespaces finds what the indexes have, and nothing of other organisations.
        let caller = tenant(scope, principal);
        let indexed = DiscoverQuery::Pattern("*canary*".to_owned());
        let indexed = registry.discover(&caller, &indexed, 100).await.unwrap();
        let indexed: BTreeSet<String> =
            indexed.iter().map(|tool| tool.id.namespace().to_owned()).collect();
        let near: BTreeSet<String> =
            expected.iter().filter(|name| of_org(scope, name)).cloned().collect();
        assert_eq!(indexed, near, "the audiences for {who}");
        let shipped = DiscoverQuery::Pattern("git:*".to_owned());
        assert!(!registry.discover(&caller, &shipped, 100).await.unwrap().is_empty(), "{who}");
    }
}

/// What is deleted, and a word that the rule does not know, are nobody's to see.
#[tokio::test]
async fn no_other_word_shows_anything() {
    let database = Database::migrated().await;
    let mut all = database.superuser().await;
    for word in ["deleted", "", "PUBLIC", "everybody"] {
        let placement = ["acme", "web", word, "alice"].map(str::to_owned);
        assert!(!shows(&mut all, ["acme", "web", "alice"], &placement).await, "{word}");
    }
}

/// Postgres inlines the rule into queries and policies: a call would hide it from the indexes.
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
