//! Stored secrets: sealed for one place, used only with a record, under changing master keys.

use std::sync::Arc;

use registry::{
    AuditRecord, KeyHost, MasterKey, MasterKeys, Registry, RegistryError, SecretName, SecretOwner,
    SecretUse, SecretValue, Tenant,
};
use sqlx::{AssertSqlSafe, Executor as _, Row as _};
use tokio::task::JoinSet;

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

/// A use for a host; of an entry of the public catalog, or of one that a tenant wrote.
fn to(host: &str, by_operator: bool) -> SecretUse {
    SecretUse { tool: "tavily:search".to_owned(), host: host.parse().unwrap(), by_operator }
}

/// Makes a master key that can be given to several gateways.
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
async fn ones_own_secret_goes_before_the_projects() {
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
    for stranger in [member("acme.shop", "alice"), member("other.web", "alice")] {
        assert_eq!(used(&registry, &stranger, "API_KEY").await, None);
        assert_eq!(registry.secrets(&stranger).await.unwrap(), []);
        let gone = registry.delete_secret(&stranger, SecretOwner::Project, &key).await;
        assert!(is_not_found(gone));
    }
    assert!(is_not_found(registry.delete_secret(&bob, SecretOwner::Me, &key).await));
    registry.delete_secret(&alice, SecretOwner::Me, &key).await.unwrap();
    assert_eq!(used(&registry, &alice, "API_KEY").await.as_deref(), Some("ours"));
    // Every step is on record, and none of them with a value.
    let uses = events(&registry, &alice, "secret.use").await;
    assert_eq!(uses.len(), 4);
    assert_eq!(uses[0].detail["host"], "upstream.example");
    assert_eq!(events(&registry, &alice, "secret.put").await.len(), 3);
    assert_eq!(events(&registry, &alice, "secret.delete").await.len(), 1);
    assert_eq!(registry.first_bad_event(&alice).await.unwrap(), None);
}

/// A stamp tells a stored secret from any other, also from the same value stored again.
#[tokio::test]
async fn a_stamp_stands_for_one_stored_secret() {
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
    // What concerns others changes nothing.
    put(&alice, project, &other).await;
    put(&member("acme.shop", "alice"), project, &key).await;
    put(&bob, me, &key).await;
    assert_eq!(now(&alice).await.as_ref(), Some(&used.stamp));
    // One's own takes the place of the project's.
    let mut seen = vec![used.stamp.clone(), now(&bob).await.unwrap()];
    assert_ne!(seen[0], seen[1]);
    put(&alice, project, &key).await;
    seen.push(now(&alice).await.unwrap());
    registry.delete_secret(&alice, project, &key).await.unwrap();
    assert_eq!(now(&alice).await, None);
    put(&alice, project, &key).await;
    let last = now(&alice).await.unwrap();
    assert!(!seen.contains(&last), "{seen:?}");
    // A host that it may not go to gets none, and looking is no use.
    let elsewhere = registry.secret_stamp(&alice, &key, to("evil.example", false)).await.unwrap();
    assert_eq!(elsewhere, None);
    assert_eq!(events(&registry, &alice, "secret.use").await.len(), 1);
}

/// P4, SE-01: no table has a value.
#[tokio::test]
async fn the_database_never_has_a_value() {
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

/// SE-04: a sealed value opens only where it was sealed for; what was moved is on record.
#[tokio::test]
async fn a_moved_row_does_not_open() {
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
        let asker = if column.is_empty() { &member("acme.web", "carol") } else { tenant };
        let before = events(&registry, asker, "secret.unreadable").await.len();
        let refused = registry.use_secret(asker, &name("TO"), purpose()).await;
        assert!(is_unreadable(&refused), "{here}: {refused:?}");
        assert_eq!(events(&registry, asker, "secret.unreadable").await.len(), before + 1, "{here}");
        // A new value mends it.
        put(tenant, owner, "TO", "y").await;
        assert_eq!(used(&registry, asker, "TO").await.as_deref(), Some("y"));
    }
    // An older value of the same secret under the present version is a moved one too.
    put(&alice, me, "FROM", "newer").await;
    tamper(&database, "create table kept as select sealed from secrets where name = 'FROM'").await;
    put(&alice, me, "FROM", "newest").await;
    tamper(&database, "update secrets set sealed = (select sealed from kept) where name = 'FROM'")
        .await;
    let refused = registry.use_secret(&alice, &name("FROM"), purpose()).await;
    assert!(is_unreadable(&refused), "{refused:?}");
    // The data key of another organisation is not one's own either.
    put(&other, project, "K", "z").await;
    let swap = "update data_keys set wrapped = (select wrapped from data_keys where org = 'acme')
        where org = 'other'";
    tamper(&database, swap).await;
    let refused = registry.use_secret(&other, &name("K"), purpose()).await;
    assert!(is_unreadable(&refused), "{refused:?}");
    let refused = registry.put_secret(&other, project, &name("K"), value("z"), vec![]).await;
    assert!(is_unreadable(&refused), "{refused:?}");
}

fn hosts(named: &[&str]) -> Vec<KeyHost> {
    named.iter().map(|host| host.parse().unwrap()).collect()
}

fn is_not_for_host<T: std::fmt::Debug>(result: &Result<T, RegistryError>) -> bool {
    matches!(result, Err(RegistryError::NotForHost { .. }))
}

/// P4: a key goes to its hosts, whoever wrote the entry; one without any where the operator says, and nowhere else.
#[tokio::test]
async fn a_key_goes_to_its_hosts_alone() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = with(&database, vec![master_key()()]).await;
    let (alice, key) = (member("acme.web", "alice"), name("K"));
    let asked = async |host: &str, by_operator| {
        let used = registry.use_secret(&alice, &key, to(host, by_operator)).await;
        used.map(|used| used.map(|used| used.value.expose().to_owned()))
    };
    let (me, project) = (SecretOwner::Me, SecretOwner::Project);
    registry.put_secret(&alice, project, &key, value("plain"), vec![]).await.unwrap();
    assert_eq!(asked("any.example", true).await.unwrap().as_deref(), Some("plain"));
    assert!(is_not_for_host(&asked("any.example", false).await));
    let told = events(&registry, &alice, "secret.use").await;
    let refused = told.iter().find(|event| event.outcome == "refused").unwrap();
    assert_eq!(refused.detail["host"], "any.example");
    let own = hosts(&["b.example:8443", "a.example"]);
    let record = registry.put_secret(&alice, me, &key, value("mine"), own).await.unwrap();
    assert_eq!(record.hosts.unwrap(), ["a.example", "b.example:8443"]);
    assert_eq!(registry.secrets(&alice).await.unwrap()[0].hosts.as_ref().unwrap().len(), 2);
    for by_operator in [true, false] {
        assert_eq!(asked("a.example", by_operator).await.unwrap().as_deref(), Some("mine"));
        assert_eq!(asked("b.example:8443", by_operator).await.unwrap().as_deref(), Some("mine"));
    }
    // One's own is passed over where it may not go.
    assert_eq!(asked("any.example", true).await.unwrap().as_deref(), Some("plain"));
    for host in ["b.example", "http://a.example", "a.example:444", "x.a.example"] {
        assert!(is_not_for_host(&asked(host, false).await), "{host}");
    }
    // The hosts are replaced with the value.
    registry.put_secret(&alice, me, &key, value("mine 2"), hosts(&["c.example"])).await.unwrap();
    assert!(is_not_for_host(&asked("a.example", false).await));
    assert_eq!(asked("c.example", false).await.unwrap().as_deref(), Some("mine 2"));
    registry.put_secret(&alice, me, &key, value("mine 3"), vec![]).await.unwrap();
    assert!(is_not_for_host(&asked("c.example", false).await));
    assert_eq!(asked("c.example", true).await.unwrap().as_deref(), Some("mine 3"));
    assert_eq!(registry.first_bad_event(&alice).await.unwrap(), None);
}

/// P4, SE-04: who can write the database cannot send a key elsewhere; what was stored before keys had hosts opens.
#[tokio::test]
async fn changed_hosts_do_not_open() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = with(&database, vec![master_key()()]).await;
    let key = name("K");
    let evil = || to("evil.example", false);
    for (before, change) in [
        (&[][..], "array['evil.example']"),
        (&["a.example"], "array['evil.example']"),
        (&["a.example"], "array['a.example', 'evil.example']"),
        (&["a.example"], "array['evil.example', 'a.example']"),
    ] {
        registry
            .put_secret(&web, SecretOwner::Project, &key, value(CANARY), hosts(before))
            .await
            .unwrap();
        tamper(&database, &format!("update secrets set hosts = {change}")).await;
        let refused = registry.use_secret(&web, &key, evil()).await;
        assert!(is_unreadable(&refused), "{change}: {refused:?}");
    }
    // Without its hosts it would go where the operator's entries lead: that does not open either.
    registry
        .put_secret(&web, SecretOwner::Project, &key, value(CANARY), hosts(&["a.example"]))
        .await
        .unwrap();
    tamper(&database, "update secrets set hosts = null").await;
    let refused = registry.use_secret(&web, &key, to("b.example", true)).await;
    assert!(is_unreadable(&refused), "{refused:?}");
    for text in ["*.example", "a.example.", "A.EXAMPLE"] {
        tamper(&database, &format!("update secrets set hosts = array['{text}']")).await;
        let refused = registry.use_secret(&web, &key, evil()).await;
        assert!(refused.is_err(), "{text}: {refused:?}");
    }
}

/// A new master key changes nothing of where keys of either kind go.
#[tokio::test]
async fn hosts_outlast_a_new_master_key() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let (first, second) = (master_key(), master_key());
    let registry = with(&database, vec![first()]).await;
    let project = SecretOwner::Project;
    registry.put_secret(&web, project, &name("OLD"), value("old"), vec![]).await.unwrap();
    registry
        .put_secret(&web, project, &name("NEW"), value("new"), hosts(&["a.example"]))
        .await
        .unwrap();
    let keys = Arc::new(MasterKeys::new(vec![second(), first()]));
    let operator = database.operator().await;
    operator.begin_rotation(&keys, second().id()).await.unwrap();
    assert_eq!(operator.rewrap(&keys, None, 10).await.unwrap().done, 1);
    operator.retire_master_keys().await.unwrap();
    let registry = with(&database, vec![second()]).await;
    for (text, host, by_operator, found) in [
        ("OLD", "a.example", true, Some("old")),
        ("NEW", "a.example", false, Some("new")),
        ("OLD", "a.example", false, None),
        ("NEW", "b.example", true, None),
    ] {
        let used = registry.use_secret(&web, &name(text), to(host, by_operator)).await;
        match found {
            Some(found) => assert_eq!(used.unwrap().unwrap().value.expose(), found),
            None => assert!(is_not_for_host(&used), "{text} {host}"),
        }
    }
}

/// SE-06: whatever stands in the row, the error is the same, and nothing panics.
#[tokio::test]
async fn a_broken_row_is_one_error() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = with(&database, vec![master_key()()]).await;
    let key = name("K");
    let mut told = std::collections::BTreeSet::new();
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
        told.insert(format!("{refused} {refused:?}"));
    }
    assert_eq!(told.len(), 1, "{told:?}");
    registry.put_secret(&web, SecretOwner::Project, &key, value(CANARY), vec![]).await.unwrap();
    assert_eq!(used(&registry, &web, "K").await.as_deref(), Some(CANARY));
}

/// SE-15: what cannot be recorded is not used; the twin is that the same works again afterwards.
#[tokio::test]
async fn no_use_without_a_record() {
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

/// SE-05: uses are counted, a used-up key makes way for a new one, and the table ends before 2^32.
#[tokio::test]
async fn a_data_key_is_used_up_long_before_nonces_meet() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = with(&database, vec![master_key()()]).await;
    let mut puts = JoinSet::new();
    for number in 0..12 {
        let (registry, web) = (registry.clone(), web.clone());
        puts.spawn(async move {
            let key = name(&format!("K{}", number % 4));
            registry
                .put_secret(&web, SecretOwner::Project, &key, value(CANARY), vec![])
                .await
                .unwrap()
        });
    }
    puts.join_all().await;
    let mut owner = database.superuser().await;
    let uses: Vec<(i32, i64)> =
        sqlx::query_as("select version, uses from data_keys").fetch_all(&mut owner).await.unwrap();
    assert_eq!(uses, [(1, 12)]);
    tamper(&database, "update data_keys set uses = 1073741824").await;
    registry
        .put_secret(&web, SecretOwner::Project, &name("K0"), value("new"), vec![])
        .await
        .unwrap();
    let uses: Vec<(i32, i64)> =
        sqlx::query_as("select version, uses from data_keys order by version")
            .fetch_all(&mut owner)
            .await
            .unwrap();
    assert_eq!(uses, [(1, 1 << 30), (2, 1)]);
    // What the old key sealed opens still.
    assert_eq!(used(&registry, &web, "K1").await.as_deref(), Some(CANARY));
    assert_eq!(used(&registry, &web, "K0").await.as_deref(), Some("new"));
    let mut app = database.app().await;
    act_as(&mut app, "acme.web", "alice").await;
    let beyond = app.execute("update data_keys set uses = uses + 1 where version = 1").await;
    assert_eq!(sqlstate(beyond), "23514");
}

#[tokio::test]
async fn a_wrong_master_key_is_told_at_once() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let bare = database.registry().await;
    let key = name("K");
    assert!(!bare.has_master_key().await.unwrap());
    let refused =
        bare.put_secret(&web, SecretOwner::Project, &key, value("x"), vec![]).await.unwrap_err();
    assert!(matches!(refused, RegistryError::NoMasterKey), "{refused}");
    assert_eq!(bare.use_secret(&web, &key, purpose()).await.unwrap(), None);
    let right = master_key();
    let registry = with(&database, vec![right()]).await;
    registry.put_secret(&web, SecretOwner::Project, &key, value("x"), vec![]).await.unwrap();
    assert!(bare.has_master_key().await.unwrap());
    let refused = bare.use_secret(&web, &key, purpose()).await.unwrap_err();
    assert!(matches!(refused, RegistryError::NoMasterKey), "{refused}");
    let wrong = MasterKeys::new(vec![master_key()()]);
    let refused = database.registry().await.with_master_keys(wrong).await.unwrap_err();
    assert!(matches!(&refused, RegistryError::WrongMasterKey { id } if id == right().id()));
    // The right one among others is enough.
    let registry = with(&database, vec![master_key()(), right()]).await;
    assert_eq!(used(&registry, &web, "K").await.as_deref(), Some("x"));
    // A check value that was changed does not pass for a key's.
    tamper(&database, "update master_keys set check_value = '\\x00'").await;
    let same = MasterKeys::new(vec![right()]);
    database.registry().await.with_master_keys(same).await.unwrap_err();
}

/// SE-07: at every point of a rotation each gateway that knows both keys reads everything.
#[tokio::test]
async fn a_rotation_may_stop_anywhere() {
    let database = Database::migrated().await;
    let orgs: Vec<String> = (0..6).map(|number| format!("org{number}.web")).collect();
    let tenants: [&str; 6] = std::array::from_fn(|index| orgs[index].as_str());
    let tenants = database.tenants(tenants).await;
    let (old, new) = (master_key(), master_key());
    let registry = with(&database, vec![old(), new()]).await;
    for tenant in &tenants[..5] {
        registry
            .put_secret(tenant, SecretOwner::Project, &name("K"), value(CANARY), vec![])
            .await
            .unwrap();
    }
    let reads_all = async |registry: &Registry| {
        for tenant in &tenants[..5] {
            assert_eq!(used(registry, tenant, "K").await.as_deref(), Some(CANARY));
        }
    };
    let keys = Arc::new(MasterKeys::new(vec![old(), new()]));
    let operator = database.operator().await;
    // Without the old key nothing begins.
    let only_new = Arc::new(MasterKeys::new(vec![new()]));
    operator.begin_rotation(&only_new, new().id()).await.unwrap_err();
    let mut done = 0;
    loop {
        // Each turn is a run that was killed after one batch.
        operator.begin_rotation(&keys, new().id()).await.unwrap();
        reads_all(&registry).await;
        reads_all(&with(&database, vec![new(), old()]).await).await;
        let one = MasterKeys::new(vec![new()]);
        database.registry().await.with_master_keys(one).await.unwrap_err();
        let report = operator.rewrap(&keys, None, 2).await.unwrap();
        done += report.done;
        assert_eq!(operator.retire_master_keys().await.unwrap().is_empty(), done < 5);
        if report.next.is_none() {
            break;
        }
    }
    assert_eq!(done, 5);
    // From here on the old one is no longer needed, and a new organisation has the new one.
    let registry = with(&database, vec![new()]).await;
    reads_all(&registry).await;
    registry
        .put_secret(&tenants[5], SecretOwner::Project, &name("K"), value("x"), vec![])
        .await
        .unwrap();
    let status = operator.master_keys().await.unwrap();
    assert_eq!(status.len(), 1);
    assert_eq!((status[0].id.as_str(), status[0].data_keys), (new().id(), 6));
    let refused = MasterKeys::new(vec![old()]);
    database.registry().await.with_master_keys(refused).await.unwrap_err();
}

/// By the policies alone: what is sealed is nobody else's to see or to change.
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
    // The serving role names no second master key.
    let second = "insert into master_keys values ('0123456789abcdef', '\\x00', true)";
    assert_eq!(sqlstate(app.execute(second).await), "23505");
    let second = "insert into master_keys values ('0123456789abcdef', '\\x00', false)";
    assert_eq!(sqlstate(app.execute(second).await), "42501");
}
