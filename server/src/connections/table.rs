//! The open connections, and which of them are closed when there are too many.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::REMINDER;
use super::state::{ConnectionState, Rank, Timeouts};

/// The default limit on connections, if enough files may be open.
const DEFAULT_TOTAL: usize = 8_192;
/// The part of the open files that is reserved for the database, upstreams and children: a third.
const RESERVED_PART: u64 = 3;
/// The part of the connections that is closed at once at a limit: a 32nd, so that the search is rarely repeated.
const BATCH_PART: usize = 32;
/// The maximum number of closing connections while further ones are accepted: until they are closed, they hold their
/// descriptors.
const CLOSING: usize = 64;
/// How long accepting waits for them.
const CLOSING_WAIT: Duration = Duration::from_millis(50);

/// The connection limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// In total.
    pub total: usize,
    /// From one address.
    pub address: usize,
}

impl Limits {
    /// Computes the limits from the limit on open files and the operator's settings.
    pub(crate) fn new(open_files: u64, total: Option<usize>, address: Option<usize>) -> Self {
        let possible =
            usize::try_from(open_files - open_files / RESERVED_PART).unwrap_or(usize::MAX);
        let total = total.unwrap_or(DEFAULT_TOTAL).min(possible).max(1);
        Self { total, address: address.unwrap_or(total / 2).clamp(1, total) }
    }
}

/// The open connections.
#[derive(Debug)]
pub(super) struct Table {
    limits: Limits,
    entries: Mutex<Entries>,
    closing: AtomicUsize,
    closed: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    /// The number of the next connection.
    next: u64,
    /// The connections by number, each with the address that it counts for.
    open: HashMap<u64, (Option<IpAddr>, Arc<ConnectionState>)>,
    /// The number of connections of each address.
    addresses: HashMap<IpAddr, usize>,
    /// When closed connections were last logged.
    logged: Option<Instant>,
    /// The number of connections that were closed since then.
    dropped: usize,
}

/// A connection in the table, until this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    number: u64,
    pub(super) state: Arc<ConnectionState>,
    table: Arc<Table>,
}

impl Table {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: Mutex::default(),
            closing: AtomicUsize::new(0),
            closed: Notify::new(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a new connection, and closes others at a limit. Returns `None` at a limit if all connections are
    /// processing requests.
    pub(super) fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Entry> {
        // The locks are always taken in this order: the table's, then a connection's.
        let mut entries = self.entries();
        // The address first: at its limit, its own connections make room, not those of others.
        if let Some(address) = address {
            let count = entries.addresses.get(&address).copied().unwrap_or_default();
            let is_same = |other: Option<IpAddr>| other == Some(address);
            if count >= self.limits.address
                && !self.drop_some(&mut entries, self.limits.address, is_same)
            {
                return None;
            }
        }
        let is_full = entries.open.len() >= self.limits.total;
        if is_full && !self.drop_some(&mut entries, self.limits.total, |_| true) {
            return None;
        }
        let state = Arc::new(ConnectionState::new(Instant::now()));
        let number = entries.next;
        entries.next += 1;
        entries.open.insert(number, (address, Arc::clone(&state)));
        if let Some(address) = address {
            *entries.addresses.entry(address).or_default() += 1;
        }
        drop(entries);
        Some(Entry { number, state, table: Arc::clone(self) })
    }

    /// Closes some connections, because no descriptors are available.
    pub(super) fn make_room(&self) {
        let mut entries = self.entries();
        self.drop_some(&mut entries, self.limits.total, |_| true);
    }

    /// Closes the connections that have exceeded a timeout.
    pub(super) fn drop_overdue(&self, timeouts: &Timeouts, now: Instant) {
        let mut entries = self.entries();
        let overdue =
            entries.open.iter().filter(|(_, (_, state))| state.close_overdue(timeouts, now));
        let overdue: Vec<u64> = overdue.map(|(number, _)| *number).collect();
        // They are already told to close; here they stop counting towards the limits.
        for number in overdue {
            self.move_to_closing(&mut entries, number);
        }
    }

    /// Waits until few connections are closing, or until the time limit.
    pub(super) async fn wait_for_closing(&self) {
        let waited = async {
            while self.closing.load(Ordering::Acquire) > CLOSING {
                // `notify_one` stores a permit, so an end before this wait is not missed.
                self.closed.notified().await;
            }
        };
        // Continue after the timeout: other connections wait to be accepted.
        let _ = tokio::time::timeout(CLOSING_WAIT, waited).await;
    }

    /// Closes some of the connections for which `matches` holds, in the order of [`Rank`] and those with the oldest
    /// state first; returns whether it closed any.
    fn drop_some(
        &self,
        entries: &mut Entries,
        limit: usize,
        matches: impl Fn(Option<IpAddr>) -> bool,
    ) -> bool {
        let mut waiting: Vec<(Rank, Instant, u64)> = entries
            .open
            .iter()
            .filter(|(_, (address, _))| matches(*address))
            .filter_map(|(number, (_, state))| {
                state.rank().map(|(rank, since)| (rank, since, *number))
            })
            .collect();
        let count = (limit / BATCH_PART).max(1).min(waiting.len());
        if count == 0 {
            return false;
        }
        // Selecting the smallest `count` is linear; a complete sort is not needed.
        waiting.select_nth_unstable(count - 1);
        waiting.truncate(count);
        let mut dropped = 0;
        for (_, _, number) in waiting {
            // A request may have arrived since the ranks were read.
            if entries.open.get(&number).is_some_and(|(_, state)| state.close_unless_busy()) {
                self.move_to_closing(entries, number);
                dropped += 1;
            }
        }
        entries.dropped += dropped;
        if dropped > 0 && entries.logged.is_none_or(|at| at.elapsed() >= REMINDER) {
            entries.logged = Some(Instant::now());
            tracing::warn!(
                connections = entries.open.len(),
                dropped = entries.dropped,
                "Too many connections; closing those that have waited longest without sending a request"
            );
            entries.dropped = 0;
        }
        dropped > 0
    }

    /// Removes a connection from the table that is about to be closed.
    fn move_to_closing(&self, entries: &mut Entries, number: u64) {
        if entries.remove(number) {
            self.closing.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Entries {
    fn remove(&mut self, number: u64) -> bool {
        let Some((address, _)) = self.open.remove(&number) else { return false };
        if let Some(address) = address
            && let Some(count) = self.addresses.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&address);
            }
        }
        true
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // A connection that was closed by the table has already been removed from it.
        let was_open = self.table.entries().remove(self.number);
        if !was_open {
            self.table.closing.fetch_sub(1, Ordering::AcqRel);
            self.table.closed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(total: usize, address: usize) -> Arc<Table> {
        Arc::new(Table::new(Limits { total, address }))
    }

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([127, 0, 0, last]))
    }

    fn is_closing(entry: &Entry) -> bool {
        !entry.table.entries().open.contains_key(&entry.number)
    }

    #[test]
    fn a_third_of_the_descriptors_is_reserved() {
        assert_eq!(Limits::new(1_024, None, None), Limits { total: 683, address: 341 });
        assert_eq!(Limits::new(65_536, None, None), Limits { total: 8_192, address: 4_096 });
        assert_eq!(Limits::new(1_024, Some(5_000), Some(5_000)).total, 683);
        assert_eq!(Limits::new(1_024, Some(100), Some(7)), Limits { total: 100, address: 7 });
        assert_eq!(Limits::new(1, Some(0), Some(0)), Limits { total: 1, address: 1 });
    }

    #[test]
    fn at_the_limit_the_oldest_connection_without_a_request_is_closed() {
        let table = table(3, 3);
        let silent = table.admit(address(1)).unwrap();
        let idle = table.admit(address(2)).unwrap();
        assert!(idle.state.on_request(false, false));
        idle.state.on_answered();
        let busy = table.admit(address(3)).unwrap();
        assert!(busy.state.on_request(false, false));
        let first = table.admit(address(4)).unwrap();
        assert!(is_closing(&silent) && !is_closing(&idle));
        assert!(first.state.on_request(false, false));
        let second = table.admit(address(5)).unwrap();
        assert!(is_closing(&idle) && !is_closing(&busy) && !is_closing(&first));
        assert!(second.state.on_request(false, false));
        assert!(table.admit(address(6)).is_none(), "all are processing requests");
        drop(busy);
        assert!(table.admit(address(6)).is_some());
    }

    #[test]
    fn at_the_limit_a_connection_that_waits_for_a_body_is_closed() {
        let table = table(1, 1);
        let slow = table.admit(address(1)).unwrap();
        assert!(slow.state.on_request(false, true));
        let next = table.admit(address(2)).unwrap();
        assert!(is_closing(&slow));
        assert!(next.state.on_request(false, true));
        next.state.on_body_end();
        assert!(table.admit(address(3)).is_none());
    }

    #[test]
    fn each_address_has_its_own_limit() {
        let table = table(10, 2);
        let other = table.admit(address(9)).unwrap();
        let from_one: Vec<Entry> = (0..5).map(|_| table.admit(address(1)).unwrap()).collect();
        assert_eq!(table.entries().addresses[&address(1).unwrap()], 2);
        assert!(!is_closing(&other));
        // Trusted proxies, which count for no address, have no limit.
        let of_proxy: Vec<Entry> = (0..5).map(|_| table.admit(None).unwrap()).collect();
        assert!(of_proxy.iter().all(|entry| !is_closing(entry)));
        drop((other, from_one, of_proxy));
        assert!(table.entries().open.is_empty() && table.entries().addresses.is_empty());
        assert_eq!(table.closing.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn overdue_connections_are_closed() {
        let table = table(10, 10);
        let silent = table.admit(address(1)).unwrap();
        let busy = table.admit(address(1)).unwrap();
        assert!(busy.state.on_request(false, false));
        table.drop_overdue(&Timeouts::DEFAULT, Instant::now() + Duration::from_secs(11));
        assert!(is_closing(&silent) && !is_closing(&busy));
    }
}
