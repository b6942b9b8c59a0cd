//! Look-up of MCP servers for the proxy, and the handles of their sessions.

use protocol::{EntryType, Fqdn, Routing, Visibility};
use registry::{EntryName, MasterKey, MasterKeys, Registry, RegistryError, Tenant};

use crate::cluster::eventually;
use crate::database::{Database, is_not_found};
use crate::published::{Published, tamper};

const URL: &str = "https://upstream.example/mcp";

fn member(scope: &str, principal: &str) -> Tenant {
    Tenant::member(scope.parse().unwrap(), principal.parse().unwrap())
}

fn name(text: &str) -> EntryName {
    text.parse().unwrap()
}

async fn with(database: &Database, keys: &[&str]) -> Registry {
    let keys = keys.iter().map(|key| key.parse().unwrap()).collect();
    database.registry().await.with_master_keys(MasterKeys::new(keys)).await.unwrap()
}

/// A server is looked up in the caller's scope, then in the catalog. Servers of other tenants are not found. The same
/// holds for cached servers.
#[tokio::test]
async fn a_server_is_visible_to_its_own_scope() {
    let database = Database::seeded().await;
    let [web, shop] = database.tenants(["acme.web", "other.shop"]).await;
    let scope = |tenant: &Tenant| tenant.scope().unwrap().to_string();
    let (alice, bob) = (member(&scope(&web), "alice"), member(&scope(&web), "bob"));
    Published::new(&web, "notes", &[("list", "Lists")]).write(&database).await;
    Published::new(&web, "diary", &[("read", "Reads")])
        .seen_by(Visibility::Private, "alice")
        .write(&database)
        .await;
    let registry = database.registry().await;
    for _ in 0..2 {
        let found = registry.server(&alice, &name("notes")).await.unwrap();
        assert_eq!(found.fqdn, "acme.web.notes".parse::<Fqdn>().unwrap());
        assert!(!found.is_fixed && registry.server(&bob, &name("acme.web.notes")).await.is_ok());
        assert!(registry.server(&alice, &name("diary")).await.is_ok());
        for (tenant, unknown) in [
            (&bob, "diary"),
            (&shop, "notes"),
            (&shop, "acme.web.notes"),
            (&alice, "nothing"),
            (&alice, "notes:list"),
            (&alice, "acme.web.notes.list"),
        ] {
            assert!(is_not_found(registry.server(tenant, &name(unknown)).await), "{unknown}");
        }
        let public = registry.server(&shop, &name("context7")).await.unwrap();
        assert_eq!(
            (public.kind, public.routing, public.is_fixed),
            (EntryType::Http, Routing::Server, true)
        );
    }
    tamper(&database, "update mcp_servers set routing = 'server' where namespace = 'notes'").await;
    eventually("the changed row is seen", async || {
        let found = registry.server(&alice, &name("notes")).await.unwrap();
        (found.is_fixed && found.routing == Routing::Server).then_some(())
    })
    .await;
    tamper(&database, "update mcp_servers set content = content || ' ' where namespace = 'notes'")
        .await;
    tamper(&database, "update mcp_servers set content = replace(content, 'Serves', 'Saves') where namespace = 'notes'").await;
    eventually("the changed content is refused", async || {
        let found = registry.server(&alice, &name("notes")).await;
        matches!(found, Err(RegistryError::IntegrityMismatch(_))).then_some(())
    })
    .await;
}

/// GW-24: a handle opens only for the principal, scope, server and URL that it was made for, on every gateway with
/// the master key, and during a rotation of that key.
#[tokio::test]
async fn a_session_handle_opens_only_for_its_caller_and_server() {
    let database = Database::seeded().await;
    let [old, new, other] = [(); 3].map(|()| MasterKey::generate().unwrap().expose().to_string());
    let (here, there) = (with(&database, &[&old]).await, with(&database, &[&old, &new]).await);
    let [ours, theirs]: [Fqdn; 2] =
        ["acme.web.notes", "acme.web.diary"].map(|name| name.parse().unwrap());
    let alice = member("acme.web", "alice");
    let handle = here.seal_session(&alice, &ours, URL, "session-1").unwrap();
    assert!(!handle.contains("session") && handle.len() > 44, "{handle}");
    assert_ne!(handle, here.seal_session(&alice, &ours, URL, "session-1").unwrap());
    for registry in [&here, &there] {
        assert_eq!(registry.open_session(&alice, &ours, URL, &handle).unwrap(), "session-1");
    }
    let refused = |tenant: &Tenant, server: &Fqdn, url: &str, handle: &str| {
        is_not_found(here.open_session(tenant, server, url, handle))
    };
    assert!(refused(&member("acme.web", "bob"), &ours, URL, &handle));
    assert!(refused(&member("acme.shop", "alice"), &ours, URL, &handle));
    assert!(refused(&alice, &theirs, URL, &handle));
    assert!(refused(&alice, &ours, "https://elsewhere.example/mcp", &handle));
    for place in 0..handle.len() {
        let mut changed = handle.clone().into_bytes();
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        // The last letter has unused bits; changing only those is refused, too.
        assert!(refused(&alice, &ours, URL, &changed), "{place}: {changed}");
    }
    for odd in ["", "session-1", "%", &handle[1..], &"A".repeat(100_000)] {
        assert!(refused(&alice, &ours, URL, odd));
    }
    assert!(here.seal_session(&alice, &ours, URL, &"x".repeat(1_025)).is_err());
    // During a rotation, gateways with both master keys open the handles of both.
    let newer = with(&database, &[&new, &old]).await;
    let later = newer.seal_session(&alice, &ours, URL, "session-2").unwrap();
    assert_eq!(there.open_session(&alice, &ours, URL, &later).unwrap(), "session-2");
    assert_eq!(newer.open_session(&alice, &ours, URL, &handle).unwrap(), "session-1");
    // Without the key no handle is made or opened.
    let elsewhere = Database::seeded().await;
    assert!(is_not_found(
        with(&elsewhere, &[&other]).await.open_session(&alice, &ours, URL, &handle)
    ));
    let bare = database.registry().await;
    assert!(matches!(bare.seal_session(&alice, &ours, URL, "s"), Err(RegistryError::NoMasterKey)));
    assert!(matches!(
        bare.open_session(&alice, &ours, URL, &handle),
        Err(RegistryError::NoMasterKey)
    ));
}
