//! A bounded cache of database look-ups with a short lifetime.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::stats::{CacheStats, HitCount};

/// The default lifetime. Changes are notified at once; the lifetime covers a lost notification.
const DEFAULT_TTL: Duration = Duration::from_secs(1);
/// The maximum number of cached answers.
const CAPACITY: usize = 10_000;

/// Answers of the database, each with its time.
pub(super) struct TtlCache<K, V> {
    entries: Mutex<HashMap<K, (V, Instant)>>,
    /// Increases when the cache is cleared, so that a look-up that began before does not store its answer afterwards.
    generation: AtomicU64,
    /// The lifetime of an answer, in milliseconds.
    ttl: AtomicU64,
    hits: HitCount,
}

impl<K, V> Default for TtlCache<K, V> {
    fn default() -> Self {
        let ttl = AtomicU64::new(DEFAULT_TTL.as_millis() as u64);
        Self {
            entries: Mutex::default(),
            generation: AtomicU64::new(0),
            ttl,
            hits: HitCount::default(),
        }
    }
}

impl<K: Eq + Hash, V: Clone> TtlCache<K, V> {
    pub(super) fn set_ttl(&self, time: Duration) {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.ttl.store(milliseconds, Ordering::SeqCst);
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl.load(Ordering::SeqCst))
    }

    pub(super) fn clear(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.lock().clear();
    }

    /// Returns the generation to pass to `insert`; read it before the database is queried.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let found = {
            let entries = self.lock();
            let found = entries.get(key).filter(|(_, since)| since.elapsed() < self.ttl());
            found.map(|(value, _)| value.clone())
        };
        self.hits.count(found.is_some());
        found
    }

    pub(super) fn stats(&self) -> CacheStats {
        self.hits.stats()
    }

    pub(super) fn insert(&self, key: K, value: V, generation: u64) {
        let mut entries = self.lock();
        // Only expired answers make room. If the cache is still full, further answers are not
        // cached, which costs queries but no memory.
        if entries.len() >= CAPACITY {
            let ttl = self.ttl();
            entries.retain(|_, (_, since)| since.elapsed() < ttl);
        }
        // Compared under the lock: `clear` increments the generation before it empties the map.
        if entries.len() < CAPACITY && self.generation() == generation {
            entries.insert(key, (value, Instant::now()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, (V, Instant)>> {
        // The map stays usable after a panic: at worst, an answer is missing and is read again.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
