//! Name resolution: nearest entry first, by version, by full name, and never a foreign entry by its short name.

use protocol::{ToolId, Visibility};
use registry::{
    Absence, DiscoverQuery, EntryName, NewCapability, Registry, RegistryError, Tenant,
    VersionUpdate,
};

use crate::cluster::eventually;
use crate::database::Database;
use crate::publish::capability;
use crate::publish_server::server;

pub(crate) async fn publish(
    registry: &Registry,
    tenant: &Tenant,
    name: &str,
    seen: Visibility,
    code: &str,
) {
    let new = NewCapability { visibility: Some(seen), ..capability(name, code) };
    registry.publish(tenant, new).await.unwrap();
}

/// Resolves a name to `scope@version`, or returns the reason for a failure with the suggested names.
async fn resolution(
    registry: &Registry,
    tenant: &Tenant,
    name: &str,
) -> Result<String, (Absence, Vec<String>)> {
    resolution_within(registry, tenant, tenant, name).await
}

async fn resolution_within(
    registry: &Registry,
    tenant: &Tenant,
    base: &Tenant,
    name: &str,
) -> Result<String, (Absence, Vec<String>)> {
    let id: ToolId = name.parse().unwrap();
    let base = base.scope().unwrap();
    let resolved = registry.resolve_within(tenant, base, std::slice::from_ref(&id)).await.unwrap();
    match (&resolved.tools[..], &resolved.missing[..]) {
        ([tool], []) => {
            assert_eq!(tool.id, id);
            let version = tool.version.as_deref().map_or_else(String::new, |v| format!("@{v}"));
            Ok(format!("{}{version}", tool.fqdn.scope()))
        }
        ([], [missing]) => {
            Err((missing.why, missing.suggestions.iter().map(ToString::to_string).collect()))
        }
        other => panic!("{other:?}"),
    }
}

fn scope(text: &str) -> Result<String, (Absence, Vec<String>)> {
    Ok(text.to_owned())
}

/// Own project, then organisation, then the shipped catalog. The hidden entries are listed.
#[tokio::test]
async fn a_short_name_resolves_to_the_nearest_entry() {
    let database = Database::seeded().await;
    let [web, core, shop] = database.tenants(["acme.web", "acme.core", "other.shop"]).await;
    let registry = database.registry().await;
    let name = "git:git_status";
    assert_eq!(resolution(&registry, &web, name).await, scope("pml.mcp"));
    publish(&registry, &core, name, Visibility::Org, "return 'core'").await;
    assert_eq!(resolution(&registry, &web, name).await, scope("acme.core@0.1.0"));
    assert_eq!(resolution(&registry, &shop, name).await, scope("pml.mcp"));
    publish(&registry, &web, name, Visibility::Project, "return 'web'").await;
    assert_eq!(resolution(&registry, &web, name).await, scope("acme.web@0.1.0"));
    assert_eq!(resolution(&registry, &core, name).await, scope("acme.core@0.1.0"));

    let hides = async |tenant: &Tenant| {
        let resolved = registry.resolve(tenant, &[name.parse().unwrap()]).await.unwrap();
        resolved.tools[0].hides.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(hides(&web).await, ["acme.core.git.git_status", "pml.mcp.git.git_status"]);
    assert_eq!(
        hides(&core).await,
        ["pml.mcp.git.git_status"],
        "the hidden entry of the project is not listed"
    );
    assert_eq!(hides(&shop).await, [""; 0]);
    // A look-up by URL resolves the same way.
    let entry: EntryName = name.parse().unwrap();
    for (tenant, owner) in [(&web, "acme.web"), (&core, "acme.core"), (&shop, "pml.mcp")] {
        let found = registry.entry(tenant, &entry).await.unwrap();
        assert_eq!(found.fqdn.scope().as_str(), owner);
    }
}

/// A nearer entry whose versions are all yanked is skipped, and reported to callers that may see it.
#[tokio::test]
async fn yanked_entries_are_skipped_and_reported() {
    let database = Database::seeded().await;
    let [web, core, shop] = database.tenants(["acme.web", "acme.core", "other.shop"]).await;
    let registry = database.registry().await;
    let skipped = async |tenant: &Tenant, name: &str| {
        let resolved = registry.resolve(tenant, &[name.parse().unwrap()]).await.unwrap();
        let names = resolved.tools[0].yanked.iter().map(ToString::to_string);
        names.collect::<Vec<_>>()
    };
    let name = "git:git_status";
    let yank = async |tenant: &Tenant, version: Option<&str>| {
        let version = version.map(|version| version.parse().unwrap());
        registry
            .update_version(tenant, &name.parse().unwrap(), version, VersionUpdate::Yank)
            .await
            .unwrap();
    };
    publish(&registry, &core, name, Visibility::Org, "return 'core'").await;
    for code in ["return 1", "return 2"] {
        publish(&registry, &web, name, Visibility::Project, code).await;
    }
    yank(&web, Some("0.1.1")).await;
    assert_eq!(resolution(&registry, &web, name).await, scope("acme.web@0.1.0"));
    assert_eq!(skipped(&web, name).await, [""; 0], "one version is left");
    yank(&web, Some("0.1.0")).await;
    assert_eq!(resolution(&registry, &web, name).await, scope("acme.core@0.1.0"));
    assert_eq!(skipped(&web, name).await, ["acme.web.git.git_status"]);
    for named in ["git:git_status@0.1.0", "acme.core.git:git_status"] {
        assert_eq!(skipped(&web, named).await, [""; 0], "{named} has one meaning");
    }
    assert_eq!(
        skipped(&core, name).await,
        [""; 0],
        "the hidden entry of the project is not listed"
    );
    yank(&core, None).await;
    assert_eq!(resolution(&registry, &web, name).await, scope("pml.mcp"));
    assert_eq!(skipped(&web, name).await, ["acme.web.git.git_status", "acme.core.git.git_status"]);
    assert_eq!(skipped(&core, name).await, ["acme.core.git.git_status"]);
    assert_eq!(skipped(&shop, name).await, [""; 0]);

    // The same holds for the tools of a published server.
    for (tenant, seen) in [(&core, Visibility::Org), (&web, Visibility::Project)] {
        let new = registry::NewServer { visibility: Some(seen), ..server("notes", "notes-one") };
        registry.publish_server(tenant, new).await.unwrap();
    }
    publish(&registry, &core, "notes:other", Visibility::Org, "return 1").await;
    assert_eq!(resolution(&registry, &web, "notes:add").await, scope("acme.web@1.0.0"));
    registry.update_server_version(&web, "notes", None, VersionUpdate::Yank).await.unwrap();
    assert_eq!(resolution(&registry, &web, "notes:add").await, scope("acme.core@1.0.0"));
    assert_eq!(skipped(&web, "notes:add").await, ["acme.web.notes.add"]);
    assert_eq!(skipped(&web, "notes:other").await, [""; 0], "the server never had this tool");
}

#[tokio::test]
async fn two_entries_of_the_organisation_are_ambiguous() {
    let database = Database::seeded().await;
    let [web, core, lab] = database.tenants(["acme.web", "acme.core", "acme.lab"]).await;
    let registry = database.registry().await;
    for tenant in [&core, &lab] {
        publish(&registry, tenant, "text:shout", Visibility::Org, "return 1").await;
    }
    let both = ["acme.core.text:shout".to_owned(), "acme.lab.text:shout".to_owned()].to_vec();
    assert_eq!(resolution(&registry, &web, "text:shout").await, Err((Absence::Ambiguous, both)));
    assert_eq!(resolution(&registry, &core, "text:shout").await, scope("acme.core@0.1.0"));
    assert_eq!(resolution(&registry, &web, "acme.lab.text:shout").await, scope("acme.lab@0.1.0"));
    let refused = registry.entry(&web, &"text:shout".parse().unwrap()).await.unwrap_err();
    assert!(
        matches!(&refused, RegistryError::Ambiguous { candidates, .. } if candidates.len() == 2),
        "{refused}"
    );
}

/// A foreign public entry is never called by its short name, even if no nearer entry has that name.
#[tokio::test]
async fn a_foreign_public_entry_needs_its_full_name() {
    let database = Database::seeded().await;
    let [web, evil, worse] = database.tenants(["acme.web", "evil.one", "worse.two"]).await;
    let registry = database.registry().await;
    publish(&registry, &evil, "files:count", Visibility::Public, "return 1").await;
    let one = vec!["evil.one.files:count".to_owned()];
    assert_eq!(resolution(&registry, &web, "files:count").await, Err((Absence::Elsewhere, one)));
    assert_eq!(resolution(&registry, &web, "evil.one.files:count").await, scope("evil.one@0.1.0"));
    publish(&registry, &worse, "files:count", Visibility::Public, "return 2").await;
    let (why, both) = resolution(&registry, &web, "files:count").await.unwrap_err();
    assert_eq!((why, both.len()), (Absence::Elsewhere, 2));
    // A foreign entry neither replaces a shipped one nor is it listed as hidden by it.
    publish(&registry, &evil, "git:git_status", Visibility::Public, "return 1").await;
    let ships = registry.resolve(&web, &["git:git_status".parse().unwrap()]).await.unwrap();
    assert_eq!(ships.tools[0].fqdn.scope().as_str(), "pml.mcp");
    assert_eq!(ships.tools[0].hides, []);
    let entry = registry.entry(&web, &"files:count".parse().unwrap()).await.unwrap_err();
    assert!(matches!(entry, RegistryError::NotFound(_)), "{entry}");
}

/// An entry that the caller may not see is answered like one that does not exist, by every form of its name.
#[tokio::test]
async fn a_hidden_entry_is_not_found_by_any_name() {
    let database = Database::seeded().await;
    let [web, core, shop] = database.tenants(["acme.web", "acme.core", "other.shop"]).await;
    let registry = database.registry().await;
    let owner = Tenant::member(core.scope().unwrap().clone(), "ann".parse().unwrap());
    publish(&registry, &owner, "mine:x", Visibility::Private, "return 1").await;
    publish(&registry, &core, "ours:x", Visibility::Project, "return 1").await;
    publish(&registry, &core, "all:x", Visibility::Org, "return 1").await;
    for (name, callers) in [
        ("mine:x", vec![&core, &web, &shop]),
        ("ours:x", vec![&web, &shop]),
        ("all:x", vec![&shop]),
    ] {
        for caller in callers {
            for form in ["", "@0.1.0"] {
                for full in [format!("{name}{form}"), format!("acme.core.{name}{form}")] {
                    let hidden = resolution(&registry, caller, &full).await;
                    let none = resolution(&registry, caller, &full.replace(":x", ":q")).await;
                    assert_eq!(hidden, Err((Absence::Unknown, Vec::new())), "{full}");
                    assert_eq!(hidden, none, "{full}");
                    let found =
                        registry.discover(caller, &DiscoverQuery::Name(full.clone()), 10).await;
                    assert_eq!(found.unwrap(), [], "{full}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_version_stays_available_by_name() {
    let database = Database::seeded().await;
    let [web, core] = database.tenants(["acme.web", "acme.core"]).await;
    let registry = database.registry().await;
    for code in ["return 1", "return 2", "return 3"] {
        publish(&registry, &core, "text:shout", Visibility::Org, code).await;
    }
    for name in ["text:shout", "acme.core.text:shout"] {
        assert_eq!(resolution(&registry, &web, name).await, scope("acme.core@0.1.2"));
        assert_eq!(
            resolution(&registry, &web, &format!("{name}@0.1.0")).await,
            scope("acme.core@0.1.0")
        );
        let (why, others) =
            resolution(&registry, &web, &format!("{name}@9.9.9")).await.unwrap_err();
        assert_eq!(why, Absence::Unknown);
        assert_eq!(others[0], format!("{name}@0.1.2"), "the newest first");
    }
    // One program can use two versions as two tools.
    let both = ["text:shout@0.1.0", "text:shout@0.1.1"].map(|id| id.parse().unwrap());
    let both = registry.resolve(&web, &both).await.unwrap();
    let codes: Vec<&str> =
        both.tools.iter().map(|tool| tool.capability.as_ref().unwrap().code.as_str()).collect();
    assert_eq!(codes, ["return 1", "return 2"]);
    // A yanked version resolves only if it is requested exactly.
    let id = "text:shout".parse().unwrap();
    registry
        .update_version(&core, &id, Some("0.1.2".parse().unwrap()), VersionUpdate::Yank)
        .await
        .unwrap();
    assert_eq!(resolution(&registry, &web, "text:shout").await, scope("acme.core@0.1.1"));
    assert_eq!(resolution(&registry, &web, "text:shout@0.1.2").await, scope("acme.core@0.1.2"));
    let (_, others) = resolution(&registry, &web, "text:shout@9.9.9").await.unwrap_err();
    assert_eq!(others, ["text:shout@0.1.1", "text:shout@0.1.0"]);
}

/// A version of a tool is the version of its server.
#[tokio::test]
async fn tools_resolve_in_versions_of_their_server() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    for (version, command) in [("1.0.0", "notes-one"), ("2.0.0", "notes-two")] {
        let new = registry::NewServer {
            version: Some(version.parse().unwrap()),
            ..server("notes", command)
        };
        registry.publish_server(&web, new).await.unwrap();
    }
    assert_eq!(resolution(&registry, &web, "notes:add").await, scope("acme.web@2.0.0"));
    assert_eq!(resolution(&registry, &web, "notes:add@1.0.0").await, scope("acme.web@1.0.0"));
    resolution(&registry, &web, "notes:other@1.0.0").await.unwrap_err();
    let integrity = async |name: &str| {
        registry.resolve(&web, &[name.parse().unwrap()]).await.unwrap().tools[0].integrity
    };
    assert_ne!(integrity("notes:add@1.0.0").await, integrity("notes:add").await);
    assert_eq!(integrity("notes:add@2.0.0").await, integrity("notes:add").await);
}

#[tokio::test]
async fn an_outdated_pin_is_reported_with_the_current_one() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    publish(&registry, &web, "text:shout", Visibility::Project, "return 1").await;
    let first = registry.resolve(&web, &["text:shout".parse().unwrap()]).await.unwrap();
    let pinned = first.tools[0].fqdn.full_tool().unwrap().to_string();
    let pinned = format!("{pinned}.{}", first.tools[0].fqdn.hash().unwrap());
    assert_eq!(resolution(&registry, &web, &pinned).await, scope("acme.web@0.1.0"));
    publish(&registry, &web, "text:shout", Visibility::Project, "return 2").await;
    let (why, now) = resolution(&registry, &web, &pinned).await.unwrap_err();
    assert_eq!(why, Absence::Changed);
    assert_eq!(now, ["acme.web.text:shout"]);
    assert_eq!(
        resolution(&registry, &web, &format!("{pinned}@0.1.0")).await,
        scope("acme.web@0.1.0")
    );
}

/// The tool names in a capability are resolved relative to its own project, with the rights of the caller.
#[tokio::test]
async fn a_foreign_program_cannot_reach_the_callers_tools() {
    let database = Database::seeded().await;
    let [web, evil] = database.tenants(["acme.web", "evil.one"]).await;
    let registry = database.registry().await;
    publish(&registry, &web, "db:query", Visibility::Project, "return 'ours'").await;
    publish(&registry, &evil, "secret:x", Visibility::Project, "return 1").await;
    publish(&registry, &evil, "open:x", Visibility::Public, "return 1").await;
    let within = async |name: &str| resolution_within(&registry, &web, &evil, name).await;
    let unknown = Err((Absence::Unknown, Vec::new()));
    for name in ["db:query", "acme.web.db:query", "acme.web.db:query@0.1.0"] {
        assert_eq!(
            within(name).await,
            unknown,
            "{name}: the program does not see the caller's tools"
        );
    }
    assert_eq!(within("secret:x").await, unknown, "the caller does not see the author's tools");
    assert_eq!(within("open:x").await, scope("evil.one@0.1.0"));
    assert_eq!(within("git:git_status").await, scope("pml.mcp"));
}

/// A cached entry is removed from the cache when it becomes hidden.
#[tokio::test]
async fn an_entry_that_becomes_hidden_leaves_the_cache() {
    let database = Database::seeded().await;
    let [web, core] = database.tenants(["acme.web", "acme.core"]).await;
    let (one, two) = (database.registry().await, database.registry().await);
    eventually("both listen", async || {
        (one.caches_entries() && two.caches_entries()).then_some(())
    })
    .await;
    publish(&one, &core, "text:shout", Visibility::Public, "return 1").await;
    let ids = ["acme.core.text:shout@0.1.0", "text:shout"].map(|id| id.parse().unwrap());
    let found =
        async || two.resolve_cached(&web, web.scope().unwrap(), &ids).await.unwrap().tools.len();
    eventually("it is found", async || (found().await == 2).then_some(())).await;
    publish(&one, &core, "text:shout", Visibility::Project, "return 1").await;
    eventually("it is hidden", async || (found().await == 0).then_some(())).await;
}

/// Discovery lists near entries by their short names and foreign ones by their full names.
#[tokio::test]
async fn discovery_lists_callable_names() {
    let database = Database::seeded().await;
    let [web, core, evil] = database.tenants(["acme.web", "acme.core", "evil.one"]).await;
    let registry = database.registry().await;
    let described = |name: &str, seen| NewCapability {
        visibility: Some(seen),
        description: "Frobnicates zebras.".to_owned(),
        ..capability(name, "return 1")
    };
    for (tenant, name, seen) in [
        (&web, "zebra:own", Visibility::Project),
        (&core, "zebra:org", Visibility::Org),
        (&core, "zebra:hidden", Visibility::Project),
        (&core, "zebra:own", Visibility::Org),
        (&evil, "zebra:own", Visibility::Public),
        (&evil, "zebra:far", Visibility::Public),
        (&evil, "zebra:private", Visibility::Org),
    ] {
        registry.publish(tenant, described(name, seen)).await.unwrap();
    }
    let found = async |query: DiscoverQuery| {
        let found = registry.discover(&web, &query, 50).await.unwrap();
        let mut ids: Vec<String> = found.iter().map(|tool| tool.id.to_string()).collect();
        ids.sort();
        (ids, found)
    };
    let all = ["evil.one.zebra:far", "evil.one.zebra:own", "zebra:org", "zebra:own"];
    for query in [
        DiscoverQuery::Text("frobnicates zebras".to_owned()),
        DiscoverQuery::Pattern("zebra:*".to_owned()),
        DiscoverQuery::Name("zebra".to_owned()),
    ] {
        let (ids, tools) = found(query.clone()).await;
        assert_eq!(ids, all, "{query:?}");
        let own = tools.iter().find(|tool| tool.id.as_str() == "zebra:own").unwrap();
        assert_eq!(own.fqdn.scope().as_str(), "acme.web");
        assert_eq!(own.version.as_deref(), Some("0.1.0"));
        let hides: Vec<String> = own.hides.iter().map(ToString::to_string).collect();
        assert_eq!(hides, ["acme.core.zebra.own"]);
    }
    for (name, id) in [
        ("evil.one.zebra.far", "evil.one.zebra:far"),
        ("zebra:org@0.1.0", "zebra:org@0.1.0"),
        ("acme.core.zebra.own@0.1.0", "acme.core.zebra:own@0.1.0"),
    ] {
        assert_eq!(found(DiscoverQuery::Name(name.to_owned())).await.0, [id], "{name}");
    }
    let (server, _) = found(DiscoverQuery::Name("evil.one.zebra".to_owned())).await;
    assert_eq!(server, ["evil.one.zebra:far", "evil.one.zebra:own"]);
}
