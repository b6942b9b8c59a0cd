//! The hosts that a secret may be sent to.

use std::sync::Arc;

use registry::{KeyHost, MasterKeys, RegistryError, SecretOwner};

use super::{CANARY, events, is_unreadable, master_key, member, name, to, value, with};
use crate::database::Database;
use crate::published::tamper;

fn hosts(named: &[&str]) -> Vec<KeyHost> {
    named.iter().map(|host| host.parse().unwrap()).collect()
}

fn is_not_for_host<T: std::fmt::Debug>(result: &Result<T, RegistryError>) -> bool {
    matches!(result, Err(RegistryError::NotForHost { .. }))
}

/// A secret is sent only to its hosts, regardless of the author of the entry. One without hosts is sent only where
/// entries of the operator lead.
#[tokio::test]
async fn a_secret_is_sent_only_to_its_hosts() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = with(&database, vec![master_key()()]).await;
    let (alice, key) = (member("acme.web", "alice"), name("K"));
    let use_for = async |host: &str, by_operator| {
        let used = registry.use_secret(&alice, &key, to(host, by_operator)).await;
        used.map(|used| used.map(|used| used.value.expose().to_owned()))
    };
    let (me, project) = (SecretOwner::Me, SecretOwner::Project);
    registry.put_secret(&alice, project, &key, value("plain"), vec![]).await.unwrap();
    assert_eq!(use_for("any.example", true).await.unwrap().as_deref(), Some("plain"));
    assert!(is_not_for_host(&use_for("any.example", false).await));
    let recorded = events(&registry, &alice, "secret.use").await;
    let refused = recorded.iter().find(|event| event.outcome == "refused").unwrap();
    assert_eq!(refused.detail["host"], "any.example");
    let own = hosts(&["b.example:8443", "a.example"]);
    let record = registry.put_secret(&alice, me, &key, value("mine"), own).await.unwrap();
    assert_eq!(record.hosts.unwrap(), ["a.example", "b.example:8443"]);
    assert_eq!(registry.secrets(&alice).await.unwrap()[0].hosts.as_ref().unwrap().len(), 2);
    for by_operator in [true, false] {
        assert_eq!(use_for("a.example", by_operator).await.unwrap().as_deref(), Some("mine"));
        assert_eq!(use_for("b.example:8443", by_operator).await.unwrap().as_deref(), Some("mine"));
    }
    // One's own secret is skipped for hosts that it may not be sent to.
    assert_eq!(use_for("any.example", true).await.unwrap().as_deref(), Some("plain"));
    for host in ["b.example", "http://a.example", "a.example:444", "x.a.example"] {
        assert!(is_not_for_host(&use_for(host, false).await), "{host}");
    }
    // The hosts are replaced with the value.
    registry.put_secret(&alice, me, &key, value("mine 2"), hosts(&["c.example"])).await.unwrap();
    assert!(is_not_for_host(&use_for("a.example", false).await));
    assert_eq!(use_for("c.example", false).await.unwrap().as_deref(), Some("mine 2"));
    registry.put_secret(&alice, me, &key, value("mine 3"), vec![]).await.unwrap();
    assert!(is_not_for_host(&use_for("c.example", false).await));
    assert_eq!(use_for("c.example", true).await.unwrap().as_deref(), Some("mine 3"));
    assert_eq!(registry.first_bad_event(&alice).await.unwrap(), None);
}

/// SE-04: write access to the database is not enough to send a secret elsewhere.
#[tokio::test]
async fn a_row_with_changed_hosts_cannot_be_opened() {
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
    // Without hosts it could be sent where the operator's entries lead, so this does not open either.
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

/// Secrets with and without hosts keep them when the master key changes.
#[tokio::test]
async fn hosts_are_kept_when_the_master_key_rotates() {
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
