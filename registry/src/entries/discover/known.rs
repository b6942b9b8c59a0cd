//! The in-memory indexes of tools: one of the catalog for everybody, one of a project's entries for its members, and
//! one of private entries for their owner.
//!
//! An index is read in transactions of its own audience, under row-level security, and is cached by audience, so a
//! tenant's search never uses another tenant's index. Before a search, the index is validated: at no cost while no
//! entry of the registry has changed, otherwise by the stamps of its entries, so that only changed ones are read again.

mod audience;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use moka::sync::Cache;
use protocol::ranking::{Described, Intent, ToolIndex};
use protocol::{Scope, ToolId};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use self::audience::Audience;
use super::Candidate;
use super::foreign::texts;
use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

/// The maximum number of cached tools of all indexes together, and the lifetime of an index that is not searched.
const CAPACITY: u64 = 200_000;
const IDLE: Duration = Duration::from_secs(15 * 60);
/// The maximum number of tools of one index. Entries are read in the order of their names; later ones are not found.
const MAX_TOOLS: usize = 100_000;
/// The number of entries read by one statement.
const CHUNK: usize = 100;
/// How long an index stays valid. Each search reads the change counter from the database, and is notified of changes
/// in progress; this limit covers a dead connection that reports nothing. The results are read again anyway.
const TTL: Duration = Duration::from_secs(60);

/// The indexes of all audiences that search.
pub(crate) struct KnownTools {
    indexes: Cache<Audience, Arc<Index>>,
}

impl Default for KnownTools {
    fn default() -> Self {
        let weigh = |_: &Audience, index: &Arc<Index>| index.weight.load(Ordering::Relaxed);
        let indexes = Cache::builder().max_capacity(CAPACITY).weigher(weigh).time_to_idle(IDLE);
        Self { indexes: indexes.build() }
    }
}

/// The index of an audience.
#[derive(Default)]
struct Index {
    state: Arc<RwLock<State>>,
    /// The approximate number of its tools, plus one: its weight in the cache is never zero.
    weight: AtomicU32,
}

#[derive(Default)]
struct State {
    tools: ToolIndex,
    /// By the number of the tool.
    names: Vec<(ToolId, Scope)>,
    by_id: HashMap<ToolId, Vec<u32>>,
    entries: HashMap<EntryKey, Indexed>,
    /// When the whole index was last equal to the database; `None` after a refresh that failed.
    current: Option<Current>,
}

/// The project, the namespace, and the name of a capability, which is empty for a server.
type EntryKey = (String, String, String);

/// An entry, as it was read.
struct Indexed {
    stamp: String,
    tools: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Current {
    /// The change counter from before it was read.
    changes: i64,
    /// The generation of the cache, which increases with each change notification.
    generation: u64,
    at: Instant,
}

impl State {
    /// Returns whether nothing has changed since the index was read.
    ///
    /// A change is counted before it is committed, and its notification arrives afterwards: one of the two reveals
    /// each change.
    fn is_current(&self, changes: i64, generation: Option<u64>) -> bool {
        self.current.is_some_and(|current| {
            current.changes >= changes
                && Some(current.generation) == generation
                && current.at.elapsed() < TTL
        })
    }

    fn remove(&mut self, entry: &EntryKey) {
        for tool in self.entries.remove(entry).into_iter().flat_map(|entry| entry.tools) {
            self.tools.remove(tool);
            // The name of a removed tool stays in `names`, whose places are the numbers of tools.
            let (id, _) = &self.names[tool as usize];
            if let Some(alike) = self.by_id.get_mut(id) {
                alike.retain(|other| *other != tool);
                if alike.is_empty() {
                    self.by_id.remove(id);
                }
            }
        }
    }

    fn insert(&mut self, entry: &EntryKey, org: &str, row: &Row) -> Result<(), RegistryError> {
        let id = ToolId::new(&entry.1, &row.name)?;
        let scope = Scope::new(org, &entry.0)?;
        // A search does not find an unreadable content; a look-up by name reports it.
        let Some(described) = texts(&row.content) else { return Ok(()) };
        let number = self.tools.insert(&Described {
            id: &id,
            description: &described.description,
            input_schema: &described.input_schema,
        });
        self.by_id.entry(id.clone()).or_default().push(number);
        // Numbers are consecutive and never reused, so this is the place of `number`.
        self.names.push((id, scope));
        if let Some(entry) = self.entries.get_mut(entry) {
            entry.tools.push(number);
        }
        Ok(())
    }
}

struct Row {
    project: String,
    namespace: String,
    entry_name: String,
    name: String,
    content: String,
}

struct Stamp {
    project: String,
    namespace: String,
    name: String,
    stamp: String,
}

/// The indexes of a tenant, read-locked: its own organisation's entries that it may see, and the catalog.
pub(super) struct Known {
    own: Option<Scope>,
    segments: Vec<Segment>,
}

struct Segment {
    state: OwnedRwLockReadGuard<State>,
    /// It is the catalog's. Its tools have the largest distance, so they hide nothing.
    is_shared: bool,
}

impl Known {
    fn distance(&self, scope: &Scope) -> u8 {
        match &self.own {
            Some(own) if own == scope => 0,
            Some(own) if own.org() == scope.org() => 1,
            _ => 2,
        }
    }

    fn candidate<'a>(
        &self,
        name: &'a (ToolId, Scope),
        score: f32,
        has_word: bool,
    ) -> Candidate<'a> {
        let (id, scope) = name;
        Candidate { id, scope, distance: self.distance(scope), score, has_word }
    }

    /// Returns all tools, with equal scores.
    pub(super) fn tools(&self) -> impl Iterator<Item = Candidate<'_>> {
        let numbers = self.segments.iter().flat_map(|Segment { state, .. }| {
            let numbers = state.by_id.values().flatten();
            numbers.map(move |number| &state.names[*number as usize])
        });
        numbers.map(|name| self.candidate(name, 1.0, true))
    }

    /// Returns the tools that match an intent, with their scores.
    pub(super) fn search(&self, intent: &Intent) -> impl Iterator<Item = Candidate<'_>> {
        self.segments.iter().flat_map(move |Segment { state, .. }| {
            let hits = state.tools.search(intent).into_iter();
            hits.map(move |hit| {
                self.candidate(&state.names[hit.tool as usize], hit.score, hit.has_word)
            })
        })
    }

    /// Returns whether a tool's short name resolves to a nearer tool.
    pub(super) fn hides(&self, tool: &Candidate<'_>) -> bool {
        tool.distance > 0
            && self.segments.iter().filter(|segment| !segment.is_shared).any(
                |Segment { state, .. }| {
                    let alike = state.by_id.get(tool.id).into_iter().flatten();
                    alike
                        .into_iter()
                        .any(|other| self.distance(&state.names[*other as usize].1) < tool.distance)
                },
            )
    }
}

impl Registry {
    /// Returns the tools that a tenant may see, at least as recent as the change counter `changes`.
    pub(super) async fn known_tools(
        &self,
        tenant: &Tenant,
        changes: i64,
    ) -> Result<Known, RegistryError> {
        let mut segments = Vec::new();
        // Every task locks the narrowest index first, so that tasks never wait for each other in a
        // circle.
        for audience in Audience::of(tenant) {
            let index = self.known.indexes.get_with(audience.clone(), Arc::default);
            let is_shared = audience == Audience::Everybody;
            let state = Arc::clone(&index.state).read_owned().await;
            if state.is_current(changes, self.entries.generation()) {
                segments.push(Segment { state, is_shared });
                continue;
            }
            // While this task holds the read lock, it could never get the write lock.
            drop(state);
            let mut state = Arc::clone(&index.state).write_owned().await;
            // Another task may have refreshed it while this one waited for the lock.
            if !state.is_current(changes, self.entries.generation()) {
                self.refresh(&audience, &mut state).await?;
                let tools = u32::try_from(state.tools.len()).unwrap_or(u32::MAX);
                index.weight.store(tools.saturating_add(1), Ordering::Relaxed);
                // The cache weighs an entry when it is inserted, so a grown index is inserted
                // again.
                self.known.indexes.insert(audience, index);
            }
            // Downgraded without a gap, so that no other task changes the index before it is
            // searched.
            segments.push(Segment { state: state.downgrade(), is_shared });
        }
        Ok(Known { own: tenant.scope().cloned(), segments })
    }

    /// Updates an index from the database. On an error it stays consistent, but does not count as current.
    async fn refresh(&self, audience: &Audience, state: &mut State) -> Result<(), RegistryError> {
        state.current = None;
        if state.tools.is_wasteful() {
            *state = State::default();
        }
        // Notifications from here on may concern changes that the following read misses.
        let generation = self.entries.generation();
        let (changes, stamps) = self.stamps(audience).await?;
        let present: HashMap<EntryKey, String> = stamps
            .into_iter()
            .map(|row| ((row.project, row.namespace, row.name), row.stamp))
            .collect();
        // An entry with another stamp has changed; it is removed here and read again below.
        let gone =
            state.entries.iter().filter(|(key, entry)| present.get(*key) != Some(&entry.stamp));
        let gone: Vec<EntryKey> = gone.map(|(key, _)| key.clone()).collect();
        for entry in &gone {
            state.remove(entry);
        }
        let mut new: Vec<(EntryKey, String)> =
            present.into_iter().filter(|(key, _)| !state.entries.contains_key(key)).collect();
        // A `HashMap` has no order. Reading by name makes it predictable which entries the limit
        // leaves out.
        new.sort_unstable();
        let org = audience.scope().org().to_owned();
        for chunk in new.chunks(CHUNK) {
            if state.tools.len() >= MAX_TOOLS {
                let scope = audience.scope();
                tracing::warn!(%scope, limit = MAX_TOOLS, "Too many tools: searches do not find some of them");
                break;
            }
            let rows = self.contents(audience, chunk).await?;
            // Also entries without tools, so that they are not read again. A content that is newer
            // than its stamp is read again by the next refresh, which finds a new stamp.
            for (key, stamp) in chunk {
                let entry = Indexed { stamp: stamp.clone(), tools: Vec::new() };
                state.entries.insert(key.clone(), entry);
            }
            for row in &rows {
                let key = (row.project.clone(), row.namespace.clone(), row.entry_name.clone());
                state.insert(&key, &org, row)?;
            }
        }
        let at = Instant::now();
        // Without change notifications there is no generation, and each search refreshes the index.
        state.current = generation.map(|generation| Current { changes, generation, at });
        Ok(())
    }

    /// Reads the stamps of all entries of an audience, and the change counter from before the read.
    async fn stamps(&self, audience: &Audience) -> Result<(i64, Vec<Stamp>), RegistryError> {
        let (tenant, scope) = (audience.tenant(), audience.scope());
        let (spans_projects, is_private) = (audience.spans_projects(), audience.is_private());
        let reader = tenant.clone();
        self.in_tenant(&reader, move |connection| {
            Box::pin(async move {
                let changes = sqlx::query_scalar!("select last_value from entry_changes");
                // A separate statement: a read after it sees at least the changes that it counts.
                let changes = changes.fetch_one(&mut *connection).await?;
                // A server's row changes with any of its tools, a capability's with its latest version.
                let stamps = sqlx::query_as!(
                    Stamp,
                    r#"select project as "project!", namespace as "namespace!", '' as "name!", xmin::text as "stamp!"
                    from mcp_servers
                    where org = $1 and ($2::text is null or project = $2) and (visibility = 'private') = $3
                        and visible_to($4, $5, $6, org, project, visibility, owner)
                    union all
                    select project, namespace, name, xmin::text from capabilities
                    where org = $1 and ($2::text is null or project = $2) and (visibility = 'private') = $3
                        and visible_to($4, $5, $6, org, project, visibility, owner)
                        and latest is not null"#,
                    scope.org(),
                    (!spans_projects).then(|| scope.project()),
                    is_private,
                    tenant.org(),
                    tenant.project(),
                    tenant.principal_name(),
                )
                .fetch_all(connection)
                .await?;
                Ok((changes, stamps))
            })
        })
        .await
    }

    /// Reads the tools of the given entries.
    async fn contents(
        &self,
        audience: &Audience,
        entries: &[(EntryKey, String)],
    ) -> Result<Vec<Row>, RegistryError> {
        let (tenant, scope) = (audience.tenant(), audience.scope());
        let (spans_projects, is_private) = (audience.spans_projects(), audience.is_private());
        let reader = tenant.clone();
        let part = |part: fn(&EntryKey) -> &String| -> Vec<String> {
            entries.iter().map(|(key, _)| part(key).clone()).collect()
        };
        let (projects, namespaces, names) =
            (part(|key| &key.0), part(|key| &key.1), part(|key| &key.2));
        self.in_tenant(&reader, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query_as!(
                    Row,
                    r#"select r.project as "project!", r.namespace as "namespace!", k.name as "entry_name!",
                        r.name as "name!", r.content as "content!"
                    from unnest($7::text[], $8::text[], $9::text[]) as k (project, namespace, name)
                    cross join lateral (
                        select r.project, r.namespace, r.name, r.content from pml_registry r
                        where r.org = $1 and r.project = k.project and r.namespace = k.namespace
                            and (case when k.name = '' then r.record_type = 'mcp-tool'
                                else r.record_type = 'capability' and r.name = k.name end)
                            and ($2::text is null or r.project = $2) and (r.visibility = 'private') = $3
                            and visible_to($4, $5, $6, r.org, r.project, r.visibility, r.owner)
                        offset 0) r"#,
                    scope.org(),
                    (!spans_projects).then(|| scope.project()),
                    is_private,
                    tenant.org(),
                    tenant.project(),
                    tenant.principal_name(),
                    &projects,
                    &namespaces,
                    &names,
                )
                .fetch_all(connection)
                .await?;
                Ok(rows)
            })
        })
        .await
    }
}
