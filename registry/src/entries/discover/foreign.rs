//! Public tools of other organisations, searched in the database.

use protocol::ranking::{Described, Intent};
use protocol::{Scope, ToolDescriptor, ToolId};
use serde::Deserialize;
use serde_json::Value;

use super::{Candidate, FOREIGN};
use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

/// The maximum number of words searched for, and of entries for each. Any organisation may publish, and searching is
/// free, so the work per search must be bounded.
const MAX_WORDS: usize = 6;
const MAX_ENTRIES: i64 = 50;
/// The number of candidates that are scored against the whole intent.
const MAX_CANDIDATES: i64 = 50;
/// The number of entries of one namespace that are considered.
const MAX_IN_NAMESPACE: i64 = 200;

/// Which public entries of other organisations to search for.
#[derive(Debug)]
pub(super) enum ForeignQuery {
    /// Those of one namespace.
    Named {
        namespace: String,
        /// The scope that they must have.
        only: Option<Scope>,
    },
    Worded {
        /// Patterns of words that occur in an entry.
        patterns: Vec<String>,
        /// A `tsquery` of alternatives. A tool matches if it contains one of them,
        terms: String,
        /// or if a part of its id is similar to one of these words.
        letters: Vec<String>,
    },
}

impl ForeignQuery {
    pub(super) fn of_words(text: &str, intent: &Intent) -> Self {
        // Words are letters and digits, so they have no wildcards of `like`. Words of fewer than
        // three letters contain no trigram, so no index could find them.
        let words = text.split(|c: char| !c.is_alphanumeric());
        let mut patterns: Vec<String> = words
            .filter(|word| word.chars().count() >= 3)
            .map(|word| format!("%{}%", word.to_lowercase()))
            .collect();
        // The longest words are the most specific. Words of one length are sorted too, because `dedup` removes only
        // neighbours.
        patterns.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        patterns.dedup();
        patterns.truncate(MAX_WORDS);
        // Stems need no escaping: they are letters and digits. They match prefixes, so `config` finds `configuration`.
        let prefix = |term: &&str| format!("'{term}'{}", if term.len() > 2 { ":*" } else { "" });
        let terms = intent.terms().iter().map(prefix).collect::<Vec<_>>().join(" | ");
        let letters = intent.words().iter().map(|word| (*word).to_owned()).collect();
        Self::Worded { patterns, terms, letters }
    }
}

/// A public tool of another organisation.
#[derive(Debug)]
pub(super) struct ForeignTool {
    id: ToolId,
    scope: Scope,
    description: String,
    input_schema: Value,
    has_word: bool,
}

impl ForeignTool {
    pub(super) fn score(&self, intent: &Intent) -> f32 {
        let Self { id, description, input_schema, .. } = self;
        intent.score(&Described { id, description, input_schema })
    }

    pub(super) fn candidate(&self, score: f32) -> Candidate<'_> {
        let Self { id, scope, has_word, .. } = self;
        Candidate { id, scope, distance: FOREIGN, score, has_word: *has_word }
    }
}

/// The parts of a stored content that are scored. Its hash is verified before it is returned.
#[derive(Deserialize)]
pub(super) struct Texts {
    tools: Vec<ToolDescriptor>,
}

/// Reads the one tool of a stored content; `None` if it cannot be parsed.
pub(super) fn texts(content: &str) -> Option<ToolDescriptor> {
    serde_json::from_str::<Texts>(content).ok()?.tools.into_iter().next()
}

struct Row {
    tool_id: String,
    org: String,
    project: String,
    content: String,
    has_word: bool,
}

impl Registry {
    /// Finds tools of other organisations, and returns the change counter from before the search.
    pub(super) async fn foreign_tools(
        &self,
        tenant: &Tenant,
        wanted: ForeignQuery,
    ) -> Result<(i64, Vec<ForeignTool>), RegistryError> {
        let (org, public) = (tenant.org().to_owned(), Scope::public());
        let (changes, rows) = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    let changes = sqlx::query_scalar!("select last_value from entry_changes");
                    let changes = changes.fetch_one(&mut *connection).await?;
                    // `materialized` and `offset 0` keep the steps separate: a join would read
                    // every tool of the registry.
                    let rows = match wanted {
                        ForeignQuery::Named { namespace, only } => {
                            sqlx::query_as!(
                                Row,
                                r#"with strangers as materialized (
                                    select e.org, e.project, e.namespace, e.name from public_entries e
                                    where e.namespace = $1 and e.org <> $2
                                        and not (e.org = $3 and e.project = $4)
                                        and ($5 = '' or (e.org = $5 and e.project = $6))
                                    order by e.org collate "C", e.project collate "C", e.name collate "C" limit $7
                                )
                                select r.tool_id as "tool_id!", r.org as "org!", r.project as "project!",
                                    '{}' as "content!", true as "has_word!"
                                from strangers s cross join lateral (
                                    select * from pml_registry r
                                    where (r.org, r.project, r.namespace) = (s.org, s.project, s.namespace)
                                        and (s.name = '' or s.name = r.name) and r.visibility = 'public'
                                    offset 0) r"#,
                                namespace,
                                org,
                                public.org(),
                                public.project(),
                                only.as_ref().map_or("", Scope::org),
                                only.as_ref().map_or("", Scope::project),
                                MAX_IN_NAMESPACE,
                            )
                            .fetch_all(connection)
                            .await?
                        }
                        ForeignQuery::Worded { patterns, terms, letters } => {
                            sqlx::query_as!(
                                Row,
                                r#"with asked as (
                                    select to_tsquery('simple', $2) as words
                                ),
                                strangers as materialized (
                                    select e.org, e.project, e.namespace, e.name
                                    from unnest($1::text[]) as w (word) cross join lateral (
                                        select p.org, p.project, p.namespace, p.name from public_entries p
                                        where p.search like w.word limit $3) e
                                    where e.org <> $4 and not (e.org = $5 and e.project = $6)
                                    group by e.org, e.project, e.namespace, e.name
                                    order by count(*) desc, e.org collate "C", e.project collate "C",
                                        e.namespace collate "C", e.name collate "C"
                                    limit $3
                                )
                                select r.tool_id as "tool_id!", r.org as "org!", r.project as "project!",
                                    r.content as "content!", r.search @@ a.words as "has_word!"
                                from asked a cross join strangers s cross join lateral (
                                    select * from pml_registry r
                                    where (r.org, r.project, r.namespace) = (s.org, s.project, s.namespace)
                                        and (s.name = '' or s.name = r.name) and r.visibility = 'public'
                                    offset 0) r
                                where r.search @@ a.words or exists (
                                    select from unnest($7::text[]) as letters
                                    where word_similarity(letters, r.tool_id) > 0.3)
                                order by ts_rank(r.search, a.words) desc, r.tool_id collate "C",
                                    r.org collate "C", r.project collate "C"
                                limit $8"#,
                                &patterns,
                                terms,
                                MAX_ENTRIES,
                                org,
                                public.org(),
                                public.project(),
                                &letters,
                                MAX_CANDIDATES,
                            )
                            .fetch_all(connection)
                            .await?
                        }
                    };
                    Ok((changes, rows))
                })
            })
            .await?;
        // A look-up by name reads no content, because all of its scores are equal.
        let tools = rows.into_iter().map(|row| {
            let described = texts(&row.content);
            let (description, input_schema) =
                described.map(|tool| (tool.description, tool.input_schema)).unwrap_or_default();
            Ok(ForeignTool {
                id: row.tool_id.parse()?,
                scope: Scope::new(&row.org, &row.project)?,
                description,
                input_schema,
                has_word: row.has_word,
            })
        });
        Ok((changes, tools.collect::<Result<_, RegistryError>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_searched_for_once() {
        for (text, expected) in [
            ("read file read", &["%file%", "%read%"][..]),
            ("Read a READ, of a file", &["%file%", "%read%"]),
            ("git status git log git", &["%status%", "%git%", "%log%"]),
            (
                "one two six ten one two six ten longest longer words",
                &["%longest%", "%longer%", "%words%", "%one%", "%six%", "%ten%"],
            ),
            ("a b", &[]),
        ] {
            match ForeignQuery::of_words(text, &Intent::new(text)) {
                ForeignQuery::Worded { patterns, .. } => assert_eq!(patterns, expected, "{text}"),
                ForeignQuery::Named { .. } => panic!("{text}"),
            }
        }
    }
}
