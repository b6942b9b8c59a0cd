//! Stored secrets: sealed for one row, used only with an audit event.

mod hosts;
mod keys;

use registry::{
    AuditRecord, MasterKey, MasterKeys, Registry, RegistryError, SecretName, SecretOwner,
    SecretUse, SecretValue, Tenant,
};
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use crate::database::{Database, act_as, is_not_found, sqlstate};
use crate::published::tamper;

const CANARY: &str = "canary-5c0e-secret";

fn name(text: &str) -> SecretName {
    text.parse().unwrap()
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(text.to_owned().into()).unwrap()
}

fn member(scope: &str, principal: &str) -> Tenant {
    Tenant::member(scope.parse().unwrap(), principal.parse().unwrap())
}

fn purpose() -> SecretUse {
    to("upstream.example", true)
}

/// A use for a host, by an entry of the catalog (`by_operator`) or of a tenant.
fn to(host: &str, by_operator: bool) -> SecretUse {
    SecretUse { tool: "tavily:search".to_owned(), host: host.parse().unwrap(), by_operator }
}

/// Generates a master key that several gateways can share.
fn master_key() -> impl Fn() -> MasterKey {
    let text = MasterKey::generate().unwrap().expose();
    move || text.parse().unwrap()
}

async fn with(database: &Database, keys: Vec<MasterKey>) -> Registry {
    let registry = database.registry().await;
    registry.with_master_keys(MasterKeys::new(keys)).await.unwrap()
}

async fn used(registry: &Registry, tenant: &Tenant, text: &str) -> Option<String> {
    let used = registry.use_secret(tenant, &name(text), purpose()).await.unwrap();
    used.map(|used| used.value.expose().to_owned())
}

async fn events(registry: &Registry, tenant: &Tenant, action: &str) -> Vec<AuditRecord> {
    let mut events = registry.audit_log(tenant, None, 200).await.unwrap().events;
    events.retain(|event| event.action == action);
    events
}

fn is_unreadable<T: std::fmt::Debug>(result: &Result<T, RegistryError>) -> bool {
    matches!(result, Err(RegistryError::UnreadableSecret(_)))
}

#[tokio::test]
async fn an_own_secret_takes_precedence_over_the_projects() {
    let database = Database::migrated().await;
    database.tenants(["acme.web", "acme.shop", "other.web"]).await;
    let registry = with(&database, vec![master_key()()]).await;
    let (alice, bob) = (member("acme.web", "alice"), member("acme.web", "bob"));
    let key = name("API_KEY");
    let first = registry
        .put_secret(&alice, SecretOwner::Project, &key, value("ours"), vec![])
        .await
        .unwrap();
    assert_eq!((first.version, first.owner), (1, SecretOwner::Project));
    assert_eq!(used(&registry, &alice, "API_KEY").await.as_deref(), Some("ours"));
    registry.put_secret(&alice, SecretOwner::Me, &key, value("mine"), vec![]).await.unwrap();
    let second =
        registry.put_secret(&alice, SecretOwner::Me, &key, value("mine 2"), vec![]).await.unwrap();
    assert_eq!(second.version, 2);
    assert_eq!(used(&registry, &alice, "API_KEY").await.as_deref(), Some("mine 2"));
    assert_eq!(used(&registry, &bob, "API_KEY").await.as_deref(), Some("ours"));
    assert_eq!(registry.secrets(&alice).await.unwrap().len(), 2);
    assert_eq!(registry.secrets(&bob).await.unwrap(), [first]);
    for outsider in [member("acme.shop", "alice"), member("other.web", "alice")] {
        assert_eq!(used(&registry, &outsider, "API_KEY").await, None);
        assert_eq!(registry.secrets(&outsider).await.unwrap(), []);
        let gone = registry.delete_secret(&outsider, SecretOwner::Project, &key).await;
        assert!(is_not_found(gone));
    }
    assert!(is_not_found(registry.delete_secret(&bob, SecretOwner::Me, &key).await));
    registry.delete_secret(&alice, SecretOwner::Me, &key).await.unwrap();
    assert_eq!(used(&registry, &alice, "API_KEY").await.as_deref(), Some("ours"));
    // Every step is audited, without the value.
    let uses = events(&registry, &alice, "secret.use").await;
    assert_eq!(uses.len(), 4);
    assert_eq!(uses[0].detail["host"], "upstream.example");
    assert_eq!(events(&registry, &alice, "secret.put").await.len(), 3);
    assert_eq!(events(&registry, &alice, "secret.delete").await.len(), 1);
    assert_eq!(registry.first_bad_event(&alice).await.unwrap(), None);
}

/// A stamp identifies a stored secret; storing the same value again gives a different stamp.
#[tokio::test]
async fn a_stamp_identifies_one_stored_secret() {
    let database = Database::migrated().await;
    database.tenants(["acme.web", "acme.shop"]).await;
    let registry = with(&database, vec![master_key()()]).await;
    let (alice, bob) = (member("acme.web", "alice"), member("acme.web", "bob"));
    let (me, project) = (SecretOwner::Me, SecretOwner::Project);
    let (key, other) = (name("API_KEY"), name("OTHER"));
    let put = async |tenant: &Tenant, owner, key: &SecretName| {
        registry.put_secret(tenant, owner, key, value("same"), vec![]).await.unwrap();
    };
    let now = async |tenant: &Tenant| registry.secret_stamp(tenant, &key, purpose()).await.unwrap();
    assert_eq!(now(&alice).await, None);
    put(&alice, project, &key).await;
    let used = registry.use_secret(&alice, &key, purpose()).await.unwrap().unwrap();
    assert_eq!(now(&alice).await.as_ref(), Some(&used.stamp));
    assert_eq!(now(&bob).await.as_ref(), Some(&used.stamp));
    // Other secrets do not change the stamp.
    put(&alice, project, &other).await;
    put(&member("acme.shop", "alice"), project, &key).await;
    put(&bob, me, &key).await;
    assert_eq!(now(&alice).await.as_ref(), Some(&used.stamp));
    // One's own secret has precedence over the project's.
    let mut seen = vec![used.stamp.clone(), now(&bob).await.unwrap()];
    assert_ne!(seen[0], seen[1]);
    put(&alice, project, &key).await;
    seen.push(now(&alice).await.unwrap());
    registry.delete_secret(&alice, project, &key).await.unwrap();
    assert_eq!(now(&alice).await, None);
    put(&alice, project, &key).await;
    let last = now(&alice).await.unwrap();
    assert!(!seen.contains(&last), "{seen:?}");
    // A host that is not permitted gets no stamp, and reading a stamp is not recorded as a use.
    let elsewhere = registry.secret_stamp(&alice, &key, to("evil.example", false)).await.unwrap();
    assert_eq!(elsewhere, None);
    assert_eq!(events(&registry, &alice, "secret.use").await.len(), 1);
}

/// SE-01: no table contains a value in plain text.
#[tokio::test]
async fn the_database_never_contains_a_value() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = with(&database, vec![master_key()()]).await;
    registry
        .put_secret(&web, SecretOwner::Project, &name("K"), value(CANARY), vec![])
        .await
        .unwrap();
    used(&registry, &web, "K").await.unwrap();
    let rows = "select to_jsonb(s)::text || encode(s.sealed, 'escape') as row from secrets s
        union all select to_jsonb(d)::text from data_keys d
        union all select to_jsonb(m)::text from master_keys m
        union all select to_jsonb(a)::text from audit_log a";
    let rows = database.superuser().await.fetch_all(rows).await.unwrap();
    assert!(rows.len() >= 5);
    for row in rows {
        let row: String = row.get("row");
        assert!(!row.contains(CANARY) && !row.contains("canary"), "{row}");
    }
}

/// SE-04: a sealed value opens only in the row that it was sealed for; a moved one is audited.
#[tokio::test]
async fn a_moved_row_cannot_be_opened() {
    let database = Database::migrated().await;
    database.tenants(["acme.web", "acme.shop", "other.web"]).await;
    let registry = with(&database, vec![master_key()()]).await;
    let alice = member("acme.web", "alice");
    let (me, project) = (SecretOwner::Me, SecretOwner::Project);
    let put = async |tenant: &Tenant, owner, text: &str, secret: &str| {
        registry.put_secret(tenant, owner, &name(text), value(secret), vec![]).await.unwrap();
    };
    let bob = member("acme.web", "bob");
    let (shop, other) = (member("acme.shop", "alice"), member("other.web", "alice"));
    let from = "(select sealed from secrets where org = 'acme' and project = 'web'
        and owner = 'alice' and name = 'FROM')";
    put(&alice, me, "FROM", CANARY).await;
    for (tenant, owner, column) in [
        (&alice, me, "alice"),
        (&alice, project, ""),
        (&bob, me, "bob"),
        (&shop, me, "alice"),
        (&other, me, "alice"),
    ] {
        put(tenant, owner, "TO", "x").await;
        let scope = tenant.scope().unwrap();
        let (org, project) = (scope.org(), scope.project());
        let here = format!(
            "org = '{org}' and project = '{project}' and owner = '{column}' and name = 'TO'"
        );
        tamper(&database, &format!("update secrets set sealed = {from} where {here}")).await;
        let caller = if column.is_empty() { &member("acme.web", "carol") } else { tenant };
        let before = events(&registry, caller, "secret.unreadable").await.len();
        let refused = registry.use_secret(caller, &name("TO"), purpose()).await;
        assert!(is_unreadable(&refused), "{here}: {refused:?}");
        assert_eq!(
            events(&registry, caller, "secret.unreadable").await.len(),
            before + 1,
            "{here}"
        );
        // Storing a new value repairs the row.
        put(tenant, owner, "TO", "y").await;
        assert_eq!(used(&registry, caller, "TO").await.as_deref(), Some("y"));
    }
    // An older value of the same secret under the current version counts as moved, too.
    put(&alice, me, "FROM", "newer").await;
    tamper(&database, "create table kept as select sealed from secrets where name = 'FROM'").await;
    put(&alice, me, "FROM", "newest").await;
    tamper(&database, "update secrets set sealed = (select sealed from kept) where name = 'FROM'")
        .await;
    let refused = registry.use_secret(&alice, &name("FROM"), purpose()).await;
    assert!(is_unreadable(&refused), "{refused:?}");
    // A data key that was copied from another organisation does not open either.
    put(&other, project, "K", "z").await;
    let swap = "update data_keys set wrapped = (select wrapped from data_keys where org = 'acme')
        where org = 'other'";
    tamper(&database, swap).await;
    let refused = registry.use_secret(&other, &name("K"), purpose()).await;
    assert!(is_unreadable(&refused), "{refused:?}");
    let refused = registry.put_secret(&other, project, &name("K"), value("z"), vec![]).await;
    assert!(is_unreadable(&refused), "{refused:?}");
}

/// SE-06: every corruption of the row gives the same error, and nothing panics.
#[tokio::test]
async fn every_broken_row_gives_the_same_error() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = with(&database, vec![master_key()()]).await;
    let key = name("K");
    let mut errors = std::collections::BTreeSet::new();
    for change in [
        "sealed = ''",
        "sealed = '\\x01'",
        "sealed = '\\xff' || substring(sealed from 2)",
        "sealed = substring(sealed for 13)",
        "sealed = substring(sealed for length(sealed) - 1)",
        "sealed = sealed || '\\x00'",
        "sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1)",
        "version = version + 1",
    ] {
        registry.put_secret(&web, SecretOwner::Project, &key, value(CANARY), vec![]).await.unwrap();
        tamper(&database, &format!("update secrets set {change}")).await;
        let refused = registry.use_secret(&web, &key, purpose()).await.unwrap_err();
        errors.insert(format!("{refused} {refused:?}"));
    }
    assert_eq!(errors.len(), 1, "{errors:?}");
    registry.put_secret(&web, SecretOwner::Project, &key, value(CANARY), vec![]).await.unwrap();
    assert_eq!(used(&registry, &web, "K").await.as_deref(), Some(CANARY));
}

/// SE-15: a use that cannot be audited is refused, and works again once it can.
#[tokio::test]
async fn a_use_that_cannot_be_recorded_is_refused() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = with(&database, vec![master_key()()]).await;
    let key = name("K");
    registry.put_secret(&web, SecretOwner::Project, &key, value(CANARY), vec![]).await.unwrap();
    tamper(&database, "revoke insert on audit_log from pml_app").await;
    registry.use_secret(&web, &key, purpose()).await.unwrap_err();
    registry
        .put_secret(&web, SecretOwner::Project, &key, value("other"), vec![])
        .await
        .unwrap_err();
    registry.delete_secret(&web, SecretOwner::Project, &key).await.unwrap_err();
    tamper(&database, "grant insert on audit_log to pml_app").await;
    assert_eq!(used(&registry, &web, "K").await.as_deref(), Some(CANARY));
}

/// The row-level policies alone hide sealed values from other tenants and principals.
#[tokio::test]
async fn raw_sql_sees_no_foreign_secret() {
    let database = Database::migrated().await;
    database.tenants(["acme.web", "acme.shop", "other.web"]).await;
    let registry = with(&database, vec![master_key()()]).await;
    for tenant in [member("acme.web", "alice"), member("other.web", "alice")] {
        for owner in [SecretOwner::Me, SecretOwner::Project] {
            registry.put_secret(&tenant, owner, &name("K"), value(CANARY), vec![]).await.unwrap();
        }
    }
    let mut app = database.app().await;
    for (scope, principal, secrets, keys) in [
        ("acme.web", "alice", 2_i64, 1_i64),
        ("acme.web", "bob", 1, 1),
        ("acme.shop", "alice", 0, 1),
        ("nobody.here", "alice", 0, 0),
        ("pml.mcp", "alice", 0, 0),
        ("", "", 0, 0),
    ] {
        act_as(&mut app, scope, principal).await;
        for (table, expected) in [("secrets", secrets), ("data_keys", keys)] {
            let count = AssertSqlSafe(format!("select count(*) from {table}"));
            let seen: i64 = sqlx::query_scalar(count).fetch_one(&mut app).await.unwrap();
            assert_eq!(seen, expected, "{table} as `{scope}` `{principal}`");
        }
        app.execute("commit").await.unwrap();
    }
    // The serving role cannot register a second master key.
    let second = "insert into master_keys values ('0123456789abcdef', '\\x00', true)";
    assert_eq!(sqlstate(app.execute(second).await), "23505");
    let second = "insert into master_keys values ('0123456789abcdef', '\\x00', false)";
    assert_eq!(sqlstate(app.execute(second).await), "42501");
}
