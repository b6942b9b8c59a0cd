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
use crate::{Registry, RegistryError};

/// The maximum sizes of the caches of entries and of tools, in bytes.
const CAPACITY: u64 = 64 * 1024 * 1024;
/// Larger ones are not cached: they would evict many others.
const LARGEST: usize = 1024 * 1024;
/// How long a cached entry or tool stays valid. Changes are notified at once; this limit covers a dead connection
/// that reports nothing.
const BELIEVED: Duration = Duration::from_secs(1);

/// An entry, and the JSON that it is served as.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedEntry {
    /// The entry; its content was verified when it was read.
    pub entry: Entry,
    /// [`protocol::RegistryEntry`] as JSON.
    pub json: Bytes,
}

/// The caller is part of the cache key: what one tenant may see says nothing about another.
type Asked = (Tenant, EntryName, Option<Version>);

/// The caller, and the scope in whose program the name is used.
type Named = (Tenant, Scope, ToolId);

/// Remembers entries and tools while the listener for changes is connected, and nothing otherwise.
pub(crate) struct EntryCache {
    entries: Cache<(Asked, u64), Arc<ServedEntry>>,
    tools: Cache<(Named, u64), Arc<ResolvedTool>>,
    /// Increases when the cache is cleared. It is part of every key, so older content is never found afterwards, even
    /// if a look-up that began before stores its answer later.
    generation: AtomicU64,
    /// Whether change notifications arrive.
    listening: AtomicBool,
}

impl Default for EntryCache {
    fn default() -> Self {
        let entries = Cache::builder()
            .max_capacity(CAPACITY)
            .weigher(|(_, _): &(Asked, u64), served: &Arc<ServedEntry>| {
                let code = served.entry.code.as_ref().map_or(0, String::len);
                // The entry is stored twice, as text and as values.
                u32::try_from(3 * served.json.len() + code + 512).unwrap_or(u32::MAX)
            })
            .time_to_live(BELIEVED)
            .build();
        let tools = Cache::builder()
            .max_capacity(CAPACITY)
            .weigher(|_: &(Named, u64), tool: &Arc<ResolvedTool>| {
                u32::try_from(size(tool) + 512).unwrap_or(u32::MAX)
            })
            .time_to_live(BELIEVED)
            .build();
        Self { entries, tools, generation: AtomicU64::new(0), listening: AtomicBool::new(false) }
    }
}

/// Returns about how many bytes a tool takes.
fn size(tool: &ResolvedTool) -> usize {
    let code = tool.capability.as_ref().map_or(0, |capability| capability.code.len());
    // Values take more than their text.
    code + 3 * serde_json::to_string(&tool.descriptor).map_or(LARGEST, |text| text.len())
}

impl EntryCache {
    /// Forgets everything: something has changed.
    pub(crate) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.entries.invalidate_all();
        self.tools.invalidate_all();
    }

    /// Sets whether change notifications arrive from now on, and clears the cache.
    pub(crate) fn set_listening(&self, listening: bool) {
        if !listening {
            self.listening.store(false, Ordering::SeqCst);
        }
        self.forget();
        if listening {
            self.listening.store(true, Ordering::SeqCst);
        }
    }

    /// Returns the present generation, while change notifications arrive.
    pub(crate) fn generation(&self) -> Option<u64> {
        let generation = self.generation.load(Ordering::SeqCst);
        self.listening.load(Ordering::SeqCst).then_some(generation)
    }
}

impl Registry {
    /// Returns an entry as [`Registry::entry_at`] does, without asking the database again while nothing has changed.
    ///
    /// # Errors
    /// As [`Registry::entry_at`]; errors are not remembered.
    pub async fn served_entry(
        &self,
        tenant: &Tenant,
        name: &EntryName,
        version: Option<Version>,
    ) -> Result<Arc<ServedEntry>, RegistryError> {
        let generation = self.entries.generation();
        let key = generation.map(|at| ((tenant.clone(), name.clone(), version), at));
        if let Some(found) = key.as_ref().and_then(|key| self.entries.entries.get(key)) {
            return Ok(found);
        }
        let entry = self.entry_at(tenant, name, version).await?;
        let json = serde_json::to_vec(&entry.entry)
            .map_err(|_| RegistryError::IntegrityMismatch(entry.fqdn.clone()))?;
        let served = Arc::new(ServedEntry { entry, json: json.into() });
        if let Some(key) = key.filter(|_| served.json.len() <= LARGEST) {
            self.entries.entries.insert(key, Arc::clone(&served));
        }
        Ok(served)
    }

    /// Resolves tools as [`Registry::resolve_within`] does, and queries the database only for those that are not
    /// cached.
    ///
    /// # Errors
    /// As [`Registry::resolve_within`]; neither errors nor unknown tools are remembered.
    pub async fn resolve_remembered(
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
        for id in ids.iter().collect::<BTreeSet<_>>() {
            match cache.get(&key(id)) {
                Some(tool) => known.push(tool),
                None => others.push(id.clone()),
            }
        }
        let mut resolved = self.resolve_within(tenant, base, &others).await?;
        for tool in resolved.tools.iter().filter(|tool| size(tool) <= LARGEST) {
            cache.insert(key(&tool.id), Arc::clone(tool));
        }
        resolved.tools.extend(known);
        resolved.tools.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(resolved)
    }

    /// Returns whether entries and tools are remembered at present.
    pub fn remembers_entries(&self) -> bool {
        self.entries.generation().is_some()
    }
}
