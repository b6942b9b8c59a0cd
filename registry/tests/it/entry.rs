//! One entry, by any of its names; never one whose content was tampered with.

use protocol::{EntryType, Routing, Visibility};
use registry::{EntryName, Registry, RegistryError, Tenant};

use crate::database::{Database, is_not_found};
use crate::published::{Published, tamper};

async fn entry(registry: &Registry, tenant: &Tenant, name: &str) -> registry::Entry {
    registry.entry(tenant, &name.parse::<EntryName>().unwrap()).await.expect(name)
}

#[tokio::test]
async fn every_form_of_a_name_resolves() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let anonymous = Tenant::anonymous();
    for name in ["filesystem", "filesystem@latest", "pml.mcp.filesystem"] {
        let found = entry(&registry, &anonymous, name).await;
        assert_eq!(found.fqdn.to_string(), "pml.mcp.filesystem");
        assert_eq!(found.visibility, Visibility::Public);
        assert_eq!((found.entry.kind, found.entry.routing), (EntryType::Stdio, Routing::Client));
        assert!(found.entry.install.is_some() && found.entry.tools.len() > 5);
        // A client computes the same hash from the body that it receives.
        assert_eq!(found.entry.content_integrity(), found.entry.integrity);
    }
    let short = entry(&registry, &anonymous, "filesystem:read_file").await;
    let full = entry(&registry, &anonymous, "pml.mcp.filesystem.read_file").await;
    let pinned = entry(&registry, &anonymous, &short.fqdn.to_string()).await;
    assert_eq!(short.fqdn.hash(), Some(&short.entry.integrity.short()));
    assert_eq!(short, full);
    assert_eq!(short, pinned);
    for unknown in ["nothing", "filesystem:nothing", "pml.mcp.nothing", "a.b.c.d"] {
        assert!(
            is_not_found(registry.entry(&anonymous, &unknown.parse().unwrap()).await),
            "{unknown}"
        );
    }
}

#[tokio::test]
async fn a_short_name_resolves_in_the_own_scope_first() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    Published::new(&web, "filesystem", &[("read_file", "Ours")]).write(&database).await;
    let registry = database.registry().await;
    for (tenant, scope) in [(&web, "acme.web"), (&Tenant::anonymous(), "pml.mcp")] {
        for name in ["filesystem", "filesystem:read_file"] {
            assert_eq!(entry(&registry, tenant, name).await.fqdn.scope().as_str(), scope);
        }
        let found = entry(&registry, tenant, "pml.mcp.filesystem").await;
        assert_eq!(found.fqdn.scope().as_str(), "pml.mcp");
    }
}

#[tokio::test]
async fn an_outdated_pin_reports_the_current_one() {
    let database = Database::seeded().await;
    let operator = database.operator().await;
    let registry = database.registry().await;
    let anonymous = Tenant::anonymous();
    let before = entry(&registry, &anonymous, "git:git_status").await;

    let mut catalog = registry::shipped_catalog();
    let git = catalog.iter_mut().find(|server| server.namespace == "git").unwrap();
    git.tools[0].descriptor.description.push_str(" Now better.");
    let changed = git.tools[0].descriptor.name.clone();
    operator.seed(&catalog).await.unwrap();

    let after = entry(&registry, &anonymous, &format!("git:{changed}")).await;
    let old = if changed == "git_status" {
        before.fqdn.clone()
    } else {
        // The same name with a hash that it does not have.
        after.fqdn.unpinned().pinned(protocol::Integrity::of(b"other").short())
    };
    match registry.entry(&anonymous, &EntryName::Full(old)).await.unwrap_err() {
        RegistryError::HashMismatch { current } => assert_eq!(current, after.fqdn),
        other => panic!("{other}"),
    }
    entry(&registry, &anonymous, &after.fqdn.to_string()).await;
}

/// RG-01: a changed byte, a changed hash and a moved row are refused.
#[tokio::test]
async fn changed_contents_are_never_served() {
    for (what, statement) in [
        (
            "one letter of the command",
            "update tools set content = replace(content, 'mcp-server-git', 'mcp-server-gjt')
            where tool_id = 'git:git_status'",
        ),
        (
            "the hash alone",
            "update tools set integrity = (select integrity from tools where tool_id = 'git:git_log')
            where tool_id = 'git:git_status'",
        ),
        (
            "a key that no type knows",
            "update tools set content = regexp_replace(content, '}$', ',\"extra\":1}')
            where tool_id = 'git:git_status'",
        ),
        (
            "a whole row of another tool, hash and all",
            "update tools t set content = o.content, integrity = o.integrity from tools o
            where t.tool_id = 'git:git_status' and o.tool_id = 'git:git_log'",
        ),
    ] {
        let database = Database::seeded().await;
        let registry = database.registry().await;
        let anonymous = Tenant::anonymous();
        entry(&registry, &anonymous, "git:git_status").await;
        assert_eq!(tamper(&database, statement).await, 1, "{what}");
        for name in ["git:git_status", "pml.mcp.git.git_status"] {
            let refused = registry.entry(&anonymous, &name.parse().unwrap()).await.unwrap_err();
            assert!(matches!(refused, RegistryError::IntegrityMismatch(_)), "{what}: {refused}");
        }
        let query = registry::DiscoverQuery::Name("git:git_status".to_owned());
        let refused = registry.discover(&anonymous, &query, 10).await.unwrap_err();
        assert!(matches!(refused, RegistryError::IntegrityMismatch(_)), "{what}: {refused}");
        entry(&registry, &anonymous, "git:git_log").await;
    }
}

/// RG-01: the same for the entry of a server.
#[tokio::test]
async fn changed_servers_are_never_served() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let changed = tamper(
        &database,
        "update mcp_servers set content = replace(content, 'uvx', 'bash') where namespace = 'git'",
    )
    .await;
    assert_eq!(changed, 1);
    let refused = registry.entry(&Tenant::anonymous(), &"git".parse().unwrap()).await.unwrap_err();
    assert!(matches!(refused, RegistryError::IntegrityMismatch(_)), "{refused}");
}
