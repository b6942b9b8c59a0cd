//! Search for tools by intent, pattern or name.
//!
//! Matches are found in in-memory indexes of the entries that the tenant may see (`known`). Public entries of other
//! organisations are searched in the database (`foreign`), so that publishing cannot fill the shared memory. The
//! results are read by key, in a transaction of the tenant, and verified (`read`): memory only provides candidates.

mod foreign;
pub(crate) mod known;
mod read;

use std::cmp::Ordering;

use protocol::ranking::{self, Intent, SCORE_FLOOR};
use protocol::{EntryType, Fqdn, Routing, Scope, ToolDescriptor, ToolId};

use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

use foreign::{ForeignQuery, ForeignTool};
use known::Known;
use read::Chosen;

/// The most tools that one call returns.
const LIMIT: u32 = 100;
/// The number of characters of an intent that are searched for; the rest is ignored.
const QUERY_LIMIT: usize = 1_000;
/// If the best score is below this, words of the intent may be misspelt, so tools with similar names match as well.
const CONFIDENT: f32 = 0.5;

/// What to search for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiscoverQuery {
    /// One tool, or all tools of a namespace: `filesystem:read_file`, `filesystem`.
    Name(String),
    /// Ids with `*` for any text: `git:*`, `*:read_*`.
    Pattern(String),
    /// What the tool should do, in words.
    Text(String),
}

impl DiscoverQuery {
    /// Returns whether it names a tool with this id; words name none.
    pub fn names(&self, id: &ToolId) -> bool {
        match self {
            Self::Name(name) => {
                id.as_str() == name
                    || id.namespace() == name
                    || ToolId::from_wire(name).is_ok_and(|named| named == *id)
            }
            Self::Pattern(text) => {
                let pattern = Pattern { text: text.clone(), has_wildcards: true };
                pattern.can_match() && pattern.matches(id.as_str())
            }
            Self::Text(_) => false,
        }
    }
}

/// A tool that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Discovered {
    /// The name that a program calls it by: its short name, or its full name if the short one resolves to something
    /// else or to nothing.
    pub id: ToolId,
    /// Its full name, pinned to its content.
    pub fqdn: Fqdn,
    /// The version of the capability or published server; entries of the catalog have none.
    pub version: Option<String>,
    /// The entries that its short name would resolve to without it.
    pub hides: Vec<Fqdn>,
    /// The kind of its server.
    pub kind: EntryType,
    /// Where it runs.
    pub routing: Routing,
    /// The score, from 0 to 1, as in [`ranking`]; for names and patterns, all scores are equal.
    pub score: f32,
    /// The operator marked it as read-only.
    pub read_only: bool,
    /// Its schemas and description.
    pub descriptor: ToolDescriptor,
}

/// A tool that may be in the answer.
#[derive(Debug, Clone, Copy)]
struct Candidate<'a> {
    /// Its id without its scope.
    id: &'a ToolId,
    scope: &'a Scope,
    /// Its distance from the tenant: 0 its own project, 1 its organisation, 2 the catalog, 3 another organisation.
    distance: u8,
    score: f32,
    /// It contains words of the intent; otherwise its name only looks like them.
    has_word: bool,
}

/// The distance of another organisation's tool, to which no short name resolves.
const FOREIGN: u8 = 3;

impl Candidate<'_> {
    /// Best score first; ties in an order that is equal on all gateways.
    fn order(&self, other: &Candidate<'_>) -> Ordering {
        let score = other.score.total_cmp(&self.score);
        score.then_with(|| self.id.cmp(other.id)).then_with(|| {
            let place = self.distance.cmp(&other.distance);
            place.then_with(|| self.scope.as_str().cmp(other.scope.as_str()))
        })
    }

    /// Nearest first, for searches in which all scores are equal.
    fn nearest(&self, other: &Candidate<'_>) -> Ordering {
        self.distance.cmp(&other.distance).then_with(|| self.order(other))
    }
}

impl Registry {
    /// Finds tools that the tenant may call: those of its own scope and organisation, the shipped ones, and the
    /// public ones of other organisations. A hidden tool is not listed; its full name appears at the tool that hides
    /// it.
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
        let limit = limit.min(LIMIT) as usize;
        match query {
            DiscoverQuery::Text(text) => self.discover_by_words(tenant, text, limit).await,
            DiscoverQuery::Pattern(pattern) => {
                let pattern = Pattern { text: pattern.clone(), has_wildcards: true };
                let namespace = pattern.text.split_once(':').map(|(namespace, _)| namespace);
                let namespace = namespace.filter(|namespace| !namespace.contains('*'));
                let namespace = namespace.unwrap_or_default().to_owned();
                self.discover_by_name(tenant, pattern, namespace, None, limit).await
            }
            DiscoverQuery::Name(name) => match ToolId::from_wire(name) {
                Ok(id) if !id.is_plain() => self.discover_exactly(tenant, id).await,
                _ if name.contains(':') => {
                    let namespace = name.split(':').next().unwrap_or_default().to_owned();
                    let pattern = Pattern { text: name.clone(), has_wildcards: false };
                    self.discover_by_name(tenant, pattern, namespace, None, limit).await
                }
                _ => {
                    let server = name.parse::<Fqdn>().ok().filter(|fqdn| fqdn.action().is_none());
                    let namespace = server.as_ref().map_or(name.as_str(), Fqdn::namespace);
                    // A `*` in the namespace itself matches nothing: `Name` has no wildcards.
                    let text = if namespace.contains('*') {
                        String::new()
                    } else {
                        format!("{namespace}:*")
                    };
                    let pattern = Pattern { text, has_wildcards: true };
                    let (namespace, only) =
                        (namespace.to_owned(), server.as_ref().map(|fqdn| fqdn.scope().clone()));
                    self.discover_by_name(tenant, pattern, namespace, only, limit).await
                }
            },
        }
    }

    async fn discover_by_name(
        &self,
        tenant: &Tenant,
        pattern: Pattern,
        namespace: String,
        only: Option<Scope>,
        limit: usize,
    ) -> Result<Vec<Discovered>, RegistryError> {
        if limit == 0 || !pattern.can_match() {
            return Ok(Vec::new());
        }
        let wanted = ForeignQuery::Named { namespace, only: only.clone() };
        let (foreign, known) = self.candidates(tenant, wanted).await?;
        let is_named = |tool: &Candidate<'_>| pattern.matches(tool.id.as_str());
        let is_wanted = |tool: &Candidate<'_>| match &only {
            Some(only) => tool.scope == only,
            None => !known.hides(tool),
        };
        let near = known.tools().filter(is_named).filter(is_wanted);
        let far = foreign.iter().map(|tool| tool.candidate(1.0)).filter(is_named);
        let mut found: Vec<Candidate<'_>> = near.chain(far).collect();
        keep(&mut found, limit, |one, other| one.nearest(other));
        let chosen = Chosen::of(&found);
        // Releases the locks of the indexes before the database is queried.
        drop(known);
        // A search within one scope lists its tools even if nearer ones hide them.
        self.read_chosen(tenant, chosen, only.is_some()).await
    }

    async fn discover_by_words(
        &self,
        tenant: &Tenant,
        text: &str,
        limit: usize,
    ) -> Result<Vec<Discovered>, RegistryError> {
        // Postgres refuses a NUL in a query.
        let text: String = text.chars().filter(|c| *c != '\0').take(QUERY_LIMIT).collect();
        let intent = Intent::new(&text);
        if limit == 0 || intent.terms().is_empty() {
            return Ok(Vec::new());
        }
        let wanted = ForeignQuery::of_words(&text, &intent);
        let (foreign, known) = self.candidates(tenant, wanted).await?;
        let near = known.search(&intent).filter(|tool| !known.hides(tool));
        let far = foreign.iter().map(|tool| tool.candidate(tool.score(&intent)));
        let mut found: Vec<Candidate<'_>> = near.chain(far).collect();
        let with_word = found.iter().filter(|tool| tool.has_word);
        if with_word.map(|tool| tool.score).fold(0.0, f32::max) >= CONFIDENT {
            found.retain(|tool| tool.has_word);
        }
        found.retain(|tool| tool.score >= SCORE_FLOOR);
        keep(&mut found, limit, |one, other| one.order(other));
        let chosen = Chosen::of(&found);
        // Releases the locks of the indexes before the database is queried.
        drop(known);
        let mut tools = self.read_chosen(tenant, chosen, false).await?;
        // Ranked again: chosen tools may be gone since, and the ids may have become full names.
        ranking::rank(&mut tools, |tool| tool.score, |tool| tool.id.as_str());
        Ok(tools)
    }

    /// Finds the candidates: other organisations' tools in the database, all others in memory.
    async fn candidates(
        &self,
        tenant: &Tenant,
        wanted: ForeignQuery,
    ) -> Result<(Vec<ForeignTool>, Known), RegistryError> {
        // Foreign tools first: their transaction reads the change counter up to which the indexes are then updated.
        let (changes, foreign) = self.foreign_tools(tenant, wanted).await?;
        Ok((foreign, self.known_tools(tenant, changes).await?))
    }

    /// Finds the one tool that a name with a scope, a version or a hash denotes.
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

/// Sorts the candidates and keeps the first `limit`.
fn keep(
    found: &mut Vec<Candidate<'_>>,
    limit: usize,
    order: impl Fn(&Candidate<'_>, &Candidate<'_>) -> Ordering,
) {
    // Selected before the sorting: there can be 100,000 candidates for a page of 100.
    if found.len() > limit {
        found.select_nth_unstable_by(limit, &order);
        found.truncate(limit);
    }
    found.sort_by(order);
}

/// A pattern for tool ids, in which `*` matches any text.
struct Pattern {
    text: String,
    has_wildcards: bool,
}

impl Pattern {
    /// Returns whether any id can match.
    fn can_match(&self) -> bool {
        !self.text.is_empty() && self.text.len() <= QUERY_LIMIT && !self.text.contains('\0')
    }

    fn matches(&self, id: &str) -> bool {
        if !self.has_wildcards {
            return self.text == id;
        }
        let mut parts = self.text.split('*');
        let Some(mut rest) = parts.next().and_then(|first| id.strip_prefix(first)) else {
            return false;
        };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        // The leftmost match of each part leaves the most text for the parts that follow.
        for part in parts {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_star_is_a_wildcard() {
        let matches = |text: &str, id: &str| {
            let text = text.to_owned();
            Pattern { text, has_wildcards: true }.matches(id)
        };
        for pattern in
            ["git:*", "*", "git:git_log", "*:*_log", "g*t*g", "**", "*git*:*", "git:git_log*"]
        {
            assert!(matches(pattern, "git:git_log"), "{pattern}");
        }
        for pattern in [
            "",
            "git",
            "git:",
            "*:",
            "git:git?log",
            "git:git%",
            "git_git_log",
            "*log*log",
            "GIT:*",
            "git:git_log_*",
        ] {
            assert!(!matches(pattern, "git:git_log"), "{pattern}");
        }
        let plain = Pattern { text: "git:*".to_owned(), has_wildcards: false };
        assert!(plain.matches("git:*") && !plain.matches("git:git_log"));
    }
}
