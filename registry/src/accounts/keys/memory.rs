//! A cache of recent look-ups.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a cached answer stays valid. Changes are notified at once; this limit covers a lost notification.
const BELIEVED: Duration = Duration::from_secs(1);
/// The maximum number of cached answers.
const REMEMBERED: usize = 10_000;

/// Answers of the database, each with its time.
pub(super) struct Memory<K, V> {
    known: Mutex<HashMap<K, (V, Instant)>>,
    /// Increases when the cache is cleared, so that a look-up that began before does not store its answer afterwards.
    generation: AtomicU64,
    /// The lifetime of an answer, in milliseconds.
    believed: AtomicU64,
}

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        let believed = AtomicU64::new(BELIEVED.as_millis() as u64);
        Self { known: Mutex::default(), generation: AtomicU64::new(0), believed }
    }
}

impl<K: Eq + Hash, V: Clone> Memory<K, V> {
    pub(super) fn believe_for(&self, time: Duration) {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.believed.store(milliseconds, Ordering::SeqCst);
    }

    fn believed(&self) -> Duration {
        Duration::from_millis(self.believed.load(Ordering::SeqCst))
    }

    pub(super) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.lock().clear();
    }

    /// Returns the generation to pass to `remember`; read it before the database is queried.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let known = self.lock();
        let (value, since) = known.get(key)?;
        (since.elapsed() < self.believed()).then(|| value.clone())
    }

    pub(super) fn remember(&self, key: K, value: V, generation: u64) {
        let mut known = self.lock();
        if known.len() >= REMEMBERED {
            let believed = self.believed();
            known.retain(|_, (_, since)| since.elapsed() < believed);
        }
        // Within the lock: `forget` raises the number before it clears.
        if known.len() < REMEMBERED && self.generation() == generation {
            known.insert(key, (value, Instant::now()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, (V, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
