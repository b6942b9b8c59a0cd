//! Tools for an intent, a pattern or a name, with their schemas.

use protocol::ranking::{self, Described, Intent};
use protocol::{EntryType, Fqdn, Routing, Scope, ToolDescriptor, ToolId};

use crate::{Registry, RegistryError, Tenant, content};

/// The most tools that one call returns.
const LIMIT: u32 = 100;
/// The longest intent that is searched for; the rest adds nothing.
const QUERY_LIMIT: usize = 1_000;
/// How many tools that have words of an intent are held against the whole of it.
const CANDIDATES: i64 = 200;
/// Where the best tool fits less than this, the words may be misspelt: tools are also looked for by likeness of letters.
const DOUBT: f32 = 0.5;

/// What to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiscoverQuery {
    /// One tool, or all tools of a namespace: `filesystem:read_file`, `filesystem`.
    Name(String),
    /// Ids with `*` for any text: `git:*`, `*:read_*`.
    Pattern(String),
    /// What the tool should do, in words.
    Text(String),
}

/// A tool that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Discovered {
    /// What a program calls it by: its short name, or its full name where the short one stands for something else
    /// or for nothing.
    pub id: ToolId,
    /// Its full name, pinned to its content.
    pub fqdn: Fqdn,
    /// The version of the capability or published server; the shipped catalog has none.
    pub version: Option<String>,
    /// The entries that its short name would stand for without it.
    pub hides: Vec<Fqdn>,
    /// The kind of its server.
    pub kind: EntryType,
    /// Where it runs.
    pub routing: Routing,
    /// How well it fits, from 0 to 1, as [`ranking`] says; names and patterns all fit equally.
    pub score: f32,
    /// It changes nothing, says the operator.
    pub read_only: bool,
    /// Its schemas and description.
    pub descriptor: ToolDescriptor,
}

impl Registry {
    /// Finds tools that the tenant may call: those of its own scope and organisation, the shipped ones, and what
    /// others have made public. One that another one hides is not listed; its full name stands at the one that does.
    ///
    /// # Errors
    /// Returns [`RegistryError::IntegrityMismatch`] when a stored tool was
    /// tampered with, and [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn discover(
        &self,
        tenant: &Tenant,
        query: &DiscoverQuery,
        limit: u32,
    ) -> Result<Vec<Discovered>, RegistryError> {
        let mut only = None;
        let pattern = match query {
            DiscoverQuery::Name(name) => match ToolId::from_wire(name) {
                Ok(id) if !id.is_plain() => return self.discover_exactly(tenant, id).await,
                _ if name.contains(':') => like(name, false),
                _ => {
                    let server = name.parse::<Fqdn>().ok().filter(|fqdn| fqdn.action().is_none());
                    let namespace = server.as_ref().map_or(name.as_str(), Fqdn::namespace);
                    let pattern = like(&format!("{namespace}:"), false) + "%";
                    only = server.map(|fqdn| fqdn.scope().clone());
                    pattern
                }
            },
            DiscoverQuery::Pattern(pattern) => like(pattern, true),
            DiscoverQuery::Text(text) => return self.discover_by_words(tenant, text, limit).await,
        };
        if pattern.contains('\0') {
            return Ok(Vec::new());
        }
        let wanted = Wanted {
            pattern: Some(pattern),
            strangers: Strangers::of(query),
            only,
            ..Wanted::default()
        };
        self.candidates(tenant, wanted, i64::from(limit.min(LIMIT))).await
    }

    async fn discover_by_words(
        &self,
        tenant: &Tenant,
        text: &str,
        limit: u32,
    ) -> Result<Vec<Discovered>, RegistryError> {
        let text: String = text.chars().filter(|c| *c != '\0').take(QUERY_LIMIT).collect();
        let intent = Intent::new(&text);
        // Stems are letters and digits; a word of the index begins with one, so that `config` finds `configuration`.
        let prefix = |term: &&str| format!("'{term}'{}", if term.len() > 2 { ":*" } else { "" });
        let words = intent.terms().iter().map(prefix).collect::<Vec<_>>().join(" | ");
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let wanted = |letters: Vec<String>| Wanted {
            words: words.clone(),
            letters,
            strangers: Strangers::of_words(&text),
            ..Wanted::default()
        };
        let ranked = |mut found: Vec<Discovered>| {
            for tool in &mut found {
                let (id, descriptor) = (tool.id.plain(), &tool.descriptor);
                let (description, input_schema) =
                    (&descriptor.description, &descriptor.input_schema);
                tool.score = intent.score(&Described { id: &id, description, input_schema });
            }
            ranking::rank(&mut found, |tool| tool.score, |tool| tool.id.as_str());
            found.truncate(limit.min(LIMIT) as usize);
            found
        };
        let found = ranked(self.candidates(tenant, wanted(Vec::new()), CANDIDATES).await?);
        if found.first().is_some_and(|best| best.score >= DOUBT) {
            return Ok(found);
        }
        let letters = intent.words().iter().map(|word| (*word).to_owned()).collect();
        Ok(ranked(self.candidates(tenant, wanted(letters), CANDIDATES).await?))
    }

    /// Returns the entries that are wanted, in the order of the database.
    async fn candidates(
        &self,
        tenant: &Tenant,
        wanted: Wanted,
        limit: i64,
    ) -> Result<Vec<Discovered>, RegistryError> {
        let Wanted { pattern, words, letters, strangers, only } = wanted;
        let (org, project) = (tenant.org().to_owned(), tenant.project().to_owned());
        let principal = tenant.principal_name().to_owned();
        let public = Scope::public();
        let rows = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    // Of strangers only so many are looked at, by an index: whoever asks pays nothing, and anybody
                    // may publish.
                    let rows = sqlx::query!(
                        r#"with asked as (
                            select to_tsquery('simple', $4) as words
                        ),
                        strangers as materialized (
                            (select distinct e.org, e.project, e.namespace, e.name
                                from unnest($9::text[]) as w (word) cross join lateral (
                                    select * from public_entries p where p.search like w.word limit 50) e)
                            union
                            (select e.org, e.project, e.namespace, e.name from public_entries e
                                where e.namespace = $10 limit 200)
                        ),
                        known as (
                            select r.* from pml_registry r where r.org = $1 or (r.org = $6 and r.project = $7)
                            union all
                            select r.* from strangers s join pml_registry r
                                on (r.org, r.project, r.namespace) = (s.org, s.project, s.namespace)
                                    and (s.name = '' or s.name = r.name)
                            where s.org <> $1 and not (s.org = $6 and s.project = $7)
                        ),
                        placed as (
                            select k.*, case
                                when org = $1 and project = $2 then 0
                                when org = $1 then 1
                                when org = $6 and project = $7 then 2
                                else 3 end as distance
                            from known k
                            where (visibility = 'public' or (org = $1 and (visibility = 'org'
                                    or (project = $2 and (visibility = 'project'
                                        or (visibility = 'private' and owner = $8))))))
                                and ($3::text is null or tool_id like $3)
                        ),
                        named as (
                            select p.*, min(distance) over (partition by tool_id) as nearest,
                                count(*) over (partition by tool_id, distance) as alike,
                                array_agg(org || '.' || project) over (partition by tool_id) as owners,
                                array_agg(distance) over (partition by tool_id) as distances
                            from placed p
                        ),
                        scored as (
                            select v.*, case
                                when $3::text is not null then 1::real
                                else greatest(
                                    case when v.search @@ a.words then 1 + ts_rank(v.search, a.words) else 0 end,
                                    (select max(word_similarity(letters, v.tool_id)) - 0.3
                                        from unnest($13::text[]) as letters))
                                end as score
                            from named v cross join asked a
                            where distance = nearest or distance = 3 or $11 <> ''
                        )
                        select tool_id as "tool_id!", org as "org!", project as "project!",
                            content as "content!", integrity as "integrity!", routing as "routing!",
                            coalesce(c.class = 'read', read_only) as "read_only!", score::real as "score!",
                            p.latest as "latest?", owners as "owners!", distances as "distances!",
                            (distance = nearest and distance < 3 and alike = 1) as "is_meant!"
                        from scored left join tool_classes c
                            using (org, project, namespace, name, integrity)
                            left join published_servers p using (org, project, namespace)
                        where score > 0 and ($11 = '' or (org = $11 and project = $12))
                        order by score desc, distance, tool_id collate "C", org collate "C", project collate "C"
                        limit $5"#,
                        org,
                        project,
                        pattern,
                        words,
                        limit,
                        public.org(),
                        public.project(),
                        principal,
                        &strangers.words,
                        strangers.namespace,
                        only.as_ref().map_or("", Scope::org),
                        only.as_ref().map_or("", Scope::project),
                        &letters,
                    )
                    .fetch_all(connection)
                    .await?;
                    Ok(rows)
                })
            })
            .await?;
        rows.into_iter()
            .map(|row| {
                let plain: ToolId = row.tool_id.parse()?;
                let scope = Scope::new(&row.org, &row.project)?;
                let name = Fqdn::of_tool(scope.clone(), &plain);
                let routing = content::routing(&row.routing);
                let (entry, fqdn) =
                    content::from_stored(name, &row.content, &row.integrity, routing)?;
                let version = entry.capability.map(|program| program.version).or(row.latest);
                let Some(descriptor) = entry.tools.into_iter().next() else {
                    return Err(RegistryError::IntegrityMismatch(fqdn));
                };
                let mut hides = Vec::new();
                if row.is_meant {
                    // A short name never stands for what a stranger has.
                    let near =
                        row.owners.iter().zip(&row.distances).filter(|(_, place)| **place < 3);
                    for owner in near.map(|(owner, _)| owner.parse::<Scope>()) {
                        let owner = owner?;
                        if owner != scope {
                            hides.push(Fqdn::of_tool(owner, &plain));
                        }
                    }
                }
                Ok(Discovered {
                    id: if row.is_meant { plain } else { plain.within(&scope) },
                    fqdn,
                    version,
                    hides,
                    kind: entry.kind,
                    routing,
                    score: row.score,
                    read_only: row.read_only,
                    descriptor,
                })
            })
            .collect()
    }

    /// Finds the one tool of a name with a scope, a version or a hash.
    async fn discover_exactly(
        &self,
        tenant: &Tenant,
        id: ToolId,
    ) -> Result<Vec<Discovered>, RegistryError> {
        let resolved = self.resolve(tenant, &[id]).await?;
        let found = resolved.tools.iter().map(|tool| Discovered {
            id: tool.id.clone(),
            fqdn: tool.fqdn.clone(),
            version: tool.version.clone(),
            hides: tool.hides.clone(),
            kind: tool.kind,
            routing: tool.routing,
            score: 1.0,
            read_only: tool.read_only,
            descriptor: tool.descriptor.clone(),
        });
        Ok(found.collect())
    }
}

/// What entries are looked for.
#[derive(Debug, Default)]
struct Wanted {
    /// A `like` pattern of ids; with one, the words do not count.
    pattern: Option<String>,
    /// What an entry has one of, as a `tsquery`.
    words: String,
    /// Words that a part of an id looks like.
    letters: Vec<String>,
    strangers: Strangers,
    /// The scope that it must have.
    only: Option<Scope>,
}

/// Which public entries of strangers are looked at.
#[derive(Debug, Default)]
struct Strangers {
    /// Patterns of words that stand in them.
    words: Vec<String>,
    /// The namespace that they have.
    namespace: String,
}

impl Strangers {
    fn of(query: &DiscoverQuery) -> Self {
        let namespace = match query {
            DiscoverQuery::Name(name) => {
                let server = name.parse::<Fqdn>().ok().map(|fqdn| fqdn.namespace().to_owned());
                server.unwrap_or_else(|| name.split(':').next().unwrap_or_default().to_owned())
            }
            DiscoverQuery::Pattern(pattern) => pattern
                .split_once(':')
                .map(|(namespace, _)| namespace)
                .filter(|namespace| !namespace.contains('*'))
                .unwrap_or_default()
                .to_owned(),
            DiscoverQuery::Text(_) => String::new(),
        };
        Self { words: Vec::new(), namespace }
    }

    fn of_words(text: &str) -> Self {
        let words = text.split(|c: char| !c.is_alphanumeric());
        let mut words: Vec<String> = words
            .filter(|word| word.chars().count() >= 3)
            .map(|word| format!("%{}%", word.to_lowercase()))
            .collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.dedup();
        // The longest say most.
        words.truncate(6);
        Self { words, namespace: String::new() }
    }
}

/// Writes a text as a `like` pattern in which only our own `*` is a wildcard.
fn like(text: &str, wildcards: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '*' if wildcards => out.push('%'),
            '%' | '_' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_star_is_a_wildcard() {
        assert_eq!(like("git:*", true), "git:%");
        assert_eq!(like("a_b:*%\\", false), "a\\_b:*\\%\\\\");
    }
}
