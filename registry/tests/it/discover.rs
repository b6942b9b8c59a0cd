//! Search for tools by name, by pattern and in words.

use protocol::Visibility;
use registry::{DiscoverQuery, Discovered, Registry, Tenant};

use crate::cluster::eventually;
use crate::database::{Database, act_as};
use crate::published::Published;

async fn found(registry: &Registry, query: DiscoverQuery) -> Vec<Discovered> {
    registry.discover(&Tenant::anonymous(), &query, 100).await.unwrap()
}

fn ids(found: &[Discovered]) -> Vec<&str> {
    found.iter().map(|tool| tool.id.as_str()).collect()
}

fn text(words: &str) -> DiscoverQuery {
    DiscoverQuery::Text(words.to_owned())
}

fn name(name: &str) -> DiscoverQuery {
    DiscoverQuery::Name(name.to_owned())
}

fn pattern(pattern: &str) -> DiscoverQuery {
    DiscoverQuery::Pattern(pattern.to_owned())
}

#[tokio::test]
async fn names_and_patterns_match_exactly() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let one = found(&registry, name("git:git_status")).await;
    assert_eq!(ids(&one), ["git:git_status"]);
    assert_eq!(one[0].fqdn.unpinned().to_string(), "pml.mcp.git.git_status");
    assert_eq!(one[0].descriptor.input_schema["type"], "object");
    let git = registry::shipped_catalog().into_iter().find(|s| s.namespace == "git").unwrap();
    for query in [name("git"), pattern("git:*")] {
        let tools = found(&registry, query).await;
        assert_eq!(tools.len(), git.tools.len());
        assert!(tools.iter().all(|tool| tool.id.namespace() == "git"));
        assert!(ids(&tools).is_sorted());
    }
    let reads = found(&registry, pattern("*:read_*")).await;
    assert!(reads.len() > 2 && reads.iter().all(|tool| tool.id.action().starts_with("read_")));
    // The wildcards of SQL are not wildcards here.
    for query in [name("git:git%"), name("git:git_statu_"), name("gi_"), pattern("git:git?status")]
    {
        assert_eq!(found(&registry, query.clone()).await, [], "{query:?}");
    }
    for query in [name(""), name(":"), name("GIT"), pattern(""), pattern("*:"), name("git:")] {
        assert_eq!(found(&registry, query.clone()).await, [], "{query:?}");
    }
}

#[tokio::test]
async fn the_best_match_comes_first() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    for (words, best) in [
        ("read the contents of a file", "filesystem:read_"),
        ("what is the current time in Tokyo", "time:get_current_time"),
        // A misspelt name, which only the similarity of letters can match.
        ("git_stauts", "git:git_stat"),
        ("convertTime", "time:convert_time"),
    ] {
        let tools = found(&registry, text(words)).await;
        assert!(tools[0].id.as_str().starts_with(best), "{words}: {:?}", ids(&tools));
        assert!(tools.is_sorted_by(|a, b| a.score >= b.score), "{words}");
        assert!(tools.iter().all(|tool| (0.25..=1.0).contains(&tool.score)));
    }
    // Inflected forms of a word are equal.
    let plural = found(&registry, text("commits")).await;
    assert_eq!(ids(&plural), ids(&found(&registry, text("commit")).await));
    assert!(ids(&plural).contains(&"git:git_commit"));
}

#[tokio::test]
async fn hostile_and_empty_queries_are_literal() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    for words in ["", " ", "\0", "the of and", "|", "!!", "&|!()<->:*", "'", "\\", "((((", "%%%"] {
        assert_eq!(ids(&found(&registry, text(words)).await), [] as [&str; 0], "{words:?}");
    }
    let long = "commit ".repeat(50_000);
    let wide = "\u{1d538}".repeat(5_000);
    for words in [
        "commit'; drop table tools; --",
        "commit & | ! <-> :*",
        "commit \\' '' \\\\ a&b",
        "https://x.example/?commit=1&file=2 commit",
        "<IMPORTANT>\u{202e}commit\u{0}",
        &long,
        &wide,
    ] {
        let tools = found(&registry, text(words)).await;
        let finds = words.contains("commit");
        assert_eq!(ids(&tools).contains(&"git:git_commit"), finds, "{words:.40}");
    }
    for hostile in ["%", "_", "\\", "'", "\0", "*\0", &long] {
        assert_eq!(found(&registry, name(hostile)).await, [], "{hostile:.40}");
        assert_eq!(found(&registry, pattern(hostile)).await, [], "{hostile:.40}");
    }
}

/// Irrelevant tools are not listed, even if nothing matches.
#[tokio::test]
async fn nonsense_finds_nothing() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    for words in ["xyzzy frobnicate", "purple monkey dishwasher", "qwertyuiop", "asdf", "的", "42"]
    {
        assert_eq!(ids(&found(&registry, text(words)).await), [] as [&str; 0], "{words:?}");
    }
}

#[tokio::test]
async fn a_limit_keeps_the_best_matches() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let nobody = Tenant::anonymous();
    let all = found(&registry, text("read file")).await;
    assert!(all.len() > 3);
    for limit in [0, 1, 3] {
        let some = registry.discover(&nobody, &text("read file"), limit).await.unwrap();
        assert_eq!(some[..], all[..limit as usize]);
    }
    let capped = registry.discover(&nobody, &pattern("*"), u32::MAX).await.unwrap();
    assert!(capped.len() <= 100);
}

/// An own tool hides the public one of the same name, as when a program resolves the name.
#[tokio::test]
async fn an_own_tool_hides_the_public_one() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    Published::new(&web, "git", &[("git_status", "Ours, about flamingos")]).write(&database).await;
    let registry = database.registry().await;
    for query in [name("git:git_status"), text("flamingos"), pattern("*git_status")] {
        let tools = registry.discover(&web, &query, 100).await.unwrap();
        let named: Vec<&Discovered> =
            tools.iter().filter(|tool| tool.id.as_str() == "git:git_status").collect();
        assert_eq!(named.len(), 1, "{query:?}");
        assert_eq!(named[0].fqdn.scope().as_str(), "acme.web");
    }
    assert_eq!(found(&registry, text("flamingos")).await, []);
}

/// A publication, a change of visibility and a deletion take effect at once on every gateway, because an index is
/// validated before each search.
#[tokio::test]
async fn a_change_is_found_at_once() {
    let database = Database::seeded().await;
    let [web, shop] = database.tenants(["acme.web", "acme.shop"]).await;
    let gateways = [database.registry().await, database.registry().await];
    let found = async |tenant: &Tenant| {
        let mut all = Vec::new();
        for registry in &gateways {
            let tools = registry.discover(tenant, &text("flamingo"), 10).await.unwrap();
            all.push(tools.iter().map(|tool| tool.fqdn.unpinned().to_string()).collect::<Vec<_>>());
        }
        assert_eq!(all[0], all[1]);
        all.remove(0)
    };
    let set = async |what: &str| {
        // By statements whose triggers notify, as the gateway's own do.
        let mut owner = database.app().await;
        act_as(&mut owner, "acme.web", "someone").await;
        let done = sqlx::Executor::execute(&mut owner, sqlx::AssertSqlSafe(what.to_owned())).await;
        assert_eq!(done.unwrap().rows_affected(), 1, "{what}");
        sqlx::Executor::execute(&mut owner, "commit").await.unwrap();
    };
    assert_eq!(found(&web).await, [] as [&str; 0]);
    for round in 0..3 {
        let namespace = format!("birds_{round}");
        let tools = [("call_flamingo", "Calls"), ("feed", "Feeds a flamingo")];
        Published::new(&web, &namespace, &tools).write(&database).await;
        let both =
            [format!("acme.web.{namespace}.call_flamingo"), format!("acme.web.{namespace}.feed")];
        assert_eq!((found(&web).await, found(&shop).await.len()), (both.to_vec(), 0));
        set(&format!("update mcp_servers set visibility = 'org' where namespace = '{namespace}'"))
            .await;
        assert_eq!((found(&web).await, found(&shop).await), (both.to_vec(), both.to_vec()));
        set(&format!(
            "update mcp_servers set visibility = 'private' where namespace = '{namespace}'"
        ))
        .await;
        assert_eq!((found(&web).await.len(), found(&shop).await.len()), (0, 0));
        let scope = web.scope().unwrap().clone();
        let owner = Tenant::member(scope, "someone".parse().unwrap());
        assert_eq!(found(&owner).await, both);
        set(&format!("delete from mcp_servers where namespace = '{namespace}'")).await;
        assert_eq!(found(&owner).await, [] as [&str; 0]);
    }
}

/// The change counter increases before the commit. A change that is uncommitted while an index is read is not in the
/// index; its notification invalidates the index after the commit.
#[tokio::test]
async fn an_uncommitted_change_is_found_after_its_commit() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    eventually("changes are heard of", async || registry.caches_entries().then_some(())).await;
    let mut writer = database.app().await;
    act_as(&mut writer, "acme.web", "someone").await;
    let tools = [("call_flamingo", "Calls")];
    let birds = Published::new(&web, "birds", &tools);
    birds.insert(&mut writer, web.scope().unwrap()).await.unwrap();
    let found = async || registry.discover(&web, &text("flamingo"), 10).await.unwrap();
    assert_eq!(found().await, []);
    sqlx::Executor::execute(&mut writer, "commit").await.unwrap();
    eventually("it is found", async || (found().await.len() == 1).then_some(())).await;
}

/// Entries that the caller may not see do not change an answer: neither its tools, their order and scores, nor what a
/// name hides, nor where the list is cut off.
#[tokio::test]
async fn an_invisible_entry_changes_no_answer() {
    let database = Database::seeded().await;
    let [web, shop, other] = database.tenants(["acme.web", "acme.shop", "other.web"]).await;
    let member = |tenant: &Tenant, name: &str| {
        Tenant::member(tenant.scope().unwrap().clone(), name.parse().unwrap())
    };
    let (alice, bob) = (member(&web, "alice"), member(&web, "bob"));
    Published::new(&web, "notes", &[("read_note", "Reads a note")]).write(&database).await;
    let registry = database.registry().await;
    let answers = async |tenant: &Tenant| {
        let mut answers = Vec::new();
        for query in [
            text("read the contents of a file"),
            text("read_note"),
            text("git_stauts"),
            text("status"),
            pattern("*:read_*"),
            pattern("*"),
            name("git:git_status"),
            name("notes"),
            name("git"),
        ] {
            for limit in [1, 3, 100] {
                answers.push(registry.discover(tenant, &query, limit).await.unwrap());
            }
        }
        answers
    };
    let askers = [&alice, &web, &other, &Tenant::anonymous()];
    let mut before = Vec::new();
    for asker in askers {
        before.push(answers(asker).await);
    }
    // Exactly the queried names, and tools that match better than all others.
    let planted = [
        ("git", &[("git_status", "Shows the status")][..]),
        ("notes", &[("read_note", "Reads a note"), ("a_read", "Reads")]),
        ("aaa", &[("read_contents_file", "Read the contents of a file"), ("status", "Status")]),
    ];
    let elsewhere = database.tenants(["third.one"]).await;
    for (namespace, tools) in planted {
        let plant = async |tenant: &Tenant, visibility: Visibility, owner: &str| {
            Published::new(tenant, namespace, tools)
                .seen_by(visibility, owner)
                .write(&database)
                .await;
        };
        plant(&shop, Visibility::Project, "someone").await;
        plant(&elsewhere[0], Visibility::Org, "someone").await;
        if namespace != "notes" {
            plant(&web, Visibility::Private, "bob").await;
        }
    }
    // Bob's private index is used for Bob only.
    let own = registry.discover(&bob, &text("read contents file"), 1).await.unwrap();
    assert_eq!(own[0].fqdn.unpinned().to_string(), "acme.web.aaa.read_contents_file");
    for (asker, before) in askers.into_iter().zip(before) {
        assert_eq!(answers(asker).await, before, "{asker:?}");
    }
}

/// A nearer tool hides the shipped one even if only the shipped one matches the query.
#[tokio::test]
async fn a_hidden_tool_is_not_found_by_its_description() {
    let database = Database::seeded().await;
    let [web, shop] = database.tenants(["acme.web", "acme.shop"]).await;
    let registry = database.registry().await;
    let all = registry.discover(&web, &text("working tree status"), 100).await.unwrap();
    assert_eq!(all[0].id.as_str(), "git:git_status");
    Published::new(&web, "git", &[("git_status", "")]).write(&database).await;
    let mine = registry.discover(&web, &text("working tree status"), 100).await.unwrap();
    let shipped = |tools: &[Discovered]| {
        tools.iter().any(|tool| tool.fqdn.unpinned().to_string() == "pml.mcp.git.git_status")
    };
    assert!(!shipped(&mine));
    let theirs = registry.discover(&shop, &text("working tree status"), 100).await.unwrap();
    assert!(shipped(&theirs));
    // The tool lists the entry that it hides.
    let own = registry.discover(&web, &name("git:git_status"), 10).await.unwrap();
    assert_eq!(
        own[0].hides.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["pml.mcp.git.git_status"]
    );
}
