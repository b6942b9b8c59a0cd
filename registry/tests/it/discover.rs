//! Tools by name, by pattern and in words.

use registry::{DiscoverQuery, Discovered, Registry, Tenant};

use crate::database::Database;
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
async fn names_and_patterns_find_exactly_what_they_say() {
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
    // Neither is a wildcard of ours.
    for query in [name("git:git%"), name("git:git_statu_"), name("gi_"), pattern("git:git?status")]
    {
        assert_eq!(found(&registry, query.clone()).await, [], "{query:?}");
    }
    for query in [name(""), name(":"), name("GIT"), pattern(""), pattern("*:"), name("git:")] {
        assert_eq!(found(&registry, query.clone()).await, [], "{query:?}");
    }
}

#[tokio::test]
async fn words_find_the_best_tool_first() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    for (words, best) in [
        ("read the contents of a file", "filesystem:read_"),
        ("what is the current time in Tokyo", "time:get_current_time"),
        // By its name alone, misspelt: only likeness of letters helps.
        ("git_stauts", "git:git_stat"),
        ("convertTime", "time:convert_time"),
    ] {
        let tools = found(&registry, text(words)).await;
        assert!(tools[0].id.as_str().starts_with(best), "{words}: {:?}", ids(&tools));
        assert!(tools.is_sorted_by(|a, b| a.score >= b.score), "{words}");
        assert!(tools.iter().all(|tool| (0.25..=1.0).contains(&tool.score)));
    }
    // English forms of a word are one word.
    let plural = found(&registry, text("commits")).await;
    assert_eq!(ids(&plural), ids(&found(&registry, text("commit")).await));
    assert!(ids(&plural).contains(&"git:git_commit"));
}

#[tokio::test]
async fn hostile_and_empty_words_are_only_words() {
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

/// What does not fit is not listed, however little there is.
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
async fn a_limit_keeps_the_best() {
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

/// An own tool hides the public one of its name, as a program would find it.
#[tokio::test]
async fn an_own_tool_is_found_once() {
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
