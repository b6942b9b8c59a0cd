//! A cache of entries and tools that were just read and verified, valid while change notifications arrive.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use moka::sync::Cache;
use protocol::{Scope, ToolId};

use crate::entries::entry::Entry;
use crate::entries::name::EntryName;
use crate::entries::resolve::{Resolved, ResolvedTool};
use crate::entries::version::Version;
use crate::identity::tenant::Tenant;
use crate::stats::{CacheStats, HitCount};
use crate::{Registry, RegistryError};

/// The maximum sizes of the caches of entries and of tools, in bytes.
const CAPACITY: u64 = 64 * 1024 * 1024;
/// Larger entries and tools are not cached: they would evict many others.
const MAX_ENTRY_BYTES: usize = 1024 * 1024;
/// How long a cached entry or tool stays valid. Changes are notified at once; this limit covers a dead connection
/// that reports nothing.
const TTL: Duration = Duration::from_secs(1);

/// An entry, and the JSON that it is served as.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedEntry {
    /// The entry; its content was verified when it was read.
    pub entry: Entry,
    /// [`protocol::RegistryEntry`] as JSON.
    pub json: Bytes,
}

/// The key of an entry. It includes the caller, because tenants see different entries.
type EntryKey = (Tenant, EntryName, Option<Version>);

/// The key of a tool: the caller, the scope of the program that uses the name, and the name.
type ToolKey = (Tenant, Scope, ToolId);

/// Caches entries and tools while the listener for changes is connected; otherwise it is disabled.
pub(crate) struct EntryCache {
    entries: Cache<(EntryKey, u64), Arc<ServedEntry>>,
    tools: Cache<(ToolKey, u64), Arc<ResolvedTool>>,
    /// Increases when the cache is cleared. It is part of every key, so older content is never found afterwards, even
    /// if a look-up that began before stores its answer later.
    generation: AtomicU64,
    /// Whether change notifications arrive.
    listening: AtomicBool,
    entry_hits: HitCount,
    tool_hits: HitCount,
}

impl Default for EntryCache {
    fn default() -> Self {
        let entries = Cache::builder()
            .max_capacity(CAPACITY)
            .weigher(|(_, _): &(EntryKey, u64), served: &Arc<ServedEntry>| {
                let code = served.entry.code.as_ref().map_or(0, String::len);
                // The entry is cached as text and as parsed values, which take about twice the text.
                u32::try_from(3 * served.json.len() + code + 512).unwrap_or(u32::MAX)
            })
            .time_to_live(TTL)
            .build();
        let tools = Cache::builder()
            .max_capacity(CAPACITY)
            .weigher(|_: &(ToolKey, u64), tool: &Arc<ResolvedTool>| {
                u32::try_from(size(tool) + 512).unwrap_or(u32::MAX)
            })
            .time_to_live(TTL)
            .build();
        Self {
            entries,
            tools,
            generation: AtomicU64::new(0),
            listening: AtomicBool::new(false),
            entry_hits: HitCount::default(),
            tool_hits: HitCount::default(),
        }
    }
}

/// Estimates the memory of a tool, in bytes.
fn size(tool: &ResolvedTool) -> usize {
    let code = tool.capability.as_ref().map_or(0, |capability| capability.code.len());
    // A parsed JSON value takes about three times the memory of its text.
    code + 3 * serde_json::to_string(&tool.descriptor).map_or(MAX_ENTRY_BYTES, |text| text.len())
}

impl EntryCache {
    /// Clears the cache.
    pub(crate) fn clear(&self) {
        // The generation first: from here on, nothing older is found. Emptying the caches only
        // frees their memory.
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.entries.invalidate_all();
        self.tools.invalidate_all();
    }

    /// Sets whether change notifications arrive from now on, and clears the cache.
    pub(crate) fn set_listening(&self, listening: bool) {
        // Disabled before the caches are emptied, and enabled only afterwards: in both cases,
        // nothing from before the switch is found later.
        if !listening {
            self.listening.store(false, Ordering::SeqCst);
        }
        self.clear();
        if listening {
            self.listening.store(true, Ordering::SeqCst);
        }
    }

    /// Returns the figures of the two caches, by name.
    pub(crate) fn stats(&self) -> [(&'static str, CacheStats); 2] {
        [("entries", self.entry_hits.stats()), ("tools", self.tool_hits.stats())]
    }

    /// Returns the current generation; `None` while change notifications do not arrive.
    pub(crate) fn generation(&self) -> Option<u64> {
        let generation = self.generation.load(Ordering::SeqCst);
        self.listening.load(Ordering::SeqCst).then_some(generation)
    }
}

impl Registry {
    /// Returns an entry as [`Registry::entry_at`] does, from the cache if no entry has changed since it was read.
    ///
    /// # Errors
    /// As [`Registry::entry_at`]; errors are not cached.
    pub async fn served_entry(
        &self,
        tenant: &Tenant,
        name: &EntryName,
        version: Option<Version>,
    ) -> Result<Arc<ServedEntry>, RegistryError> {
        let generation = self.entries.generation();
        let key = generation.map(|at| ((tenant.clone(), name.clone(), version), at));
        let found = key.as_ref().and_then(|key| self.entries.entries.get(key));
        self.entries.entry_hits.count(found.is_some());
        if let Some(found) = found {
            return Ok(found);
        }
        let entry = self.entry_at(tenant, name, version).await?;
        let json = serde_json::to_vec(&entry.entry)
            .map_err(|_| RegistryError::IntegrityMismatch(entry.fqdn.clone()))?;
        let served = Arc::new(ServedEntry { entry, json: json.into() });
        if let Some(key) = key.filter(|_| served.json.len() <= MAX_ENTRY_BYTES) {
            self.entries.entries.insert(key, Arc::clone(&served));
        }
        Ok(served)
    }

    /// Resolves tools as [`Registry::resolve_within`] does, and queries the database only for those that are not
    /// cached.
    ///
    /// # Errors
    /// As [`Registry::resolve_within`]; neither errors nor unknown tools are cached.
    pub async fn resolve_cached(
        &self,
        tenant: &Tenant,
        base: &Scope,
        ids: &[ToolId],
    ) -> Result<Resolved, RegistryError> {
        let Some(at) = self.entries.generation() else {
            return self.resolve_within(tenant, base, ids).await;
        };
        let cache = &self.entries.tools;
        let key = |id: &ToolId| ((tenant.clone(), base.clone(), id.clone()), at);
        let (mut known, mut others) = (Vec::new(), Vec::new());
        // Without duplicates, as in the answer of `resolve_within`.
        for id in ids.iter().collect::<BTreeSet<_>>() {
            let found = cache.get(&key(id));
            self.entries.tool_hits.count(found.is_some());
            match found {
                Some(tool) => known.push(tool),
                None => others.push(id.clone()),
            }
        }
        let mut resolved = self.resolve_within(tenant, base, &others).await?;
        for tool in resolved.tools.iter().filter(|tool| size(tool) <= MAX_ENTRY_BYTES) {
            cache.insert(key(&tool.id), Arc::clone(tool));
        }
        resolved.tools.extend(known);
        resolved.tools.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(resolved)
    }

    /// Returns whether the cache is enabled, which it is while change notifications arrive.
    pub fn caches_entries(&self) -> bool {
        self.entries.generation().is_some()
    }
}
