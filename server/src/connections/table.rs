//! The open connections, and which of them are closed when there are too many.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::REMINDER;
use super::live::{Live, Rank, Times};

/// The largest useful number of connections, however many files may be open.
const MOST: usize = 8_192;
/// One part in so many of the open files is for everything else: the database, upstreams, children.
const RESERVE: u64 = 3;
/// At a limit, one part in so many is closed at once, so that the search for them is seldom.
const BATCH: usize = 32;
/// How many connections may be closing before the next one is accepted: until they are closed, they hold their
/// descriptors.
const CLOSING: usize = 64;
/// The time limit of that wait.
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
    /// Returns the limits where so many files may be open and the operator has set these.
    pub(crate) fn new(open_files: u64, total: Option<usize>, address: Option<usize>) -> Self {
        let room = usize::try_from(open_files - open_files / RESERVE).unwrap_or(usize::MAX);
        let total = total.unwrap_or(MOST).min(room).max(1);
        Self { total, address: address.unwrap_or(total / 2).clamp(1, total) }
    }
}

/// The open connections.
#[derive(Debug)]
pub(super) struct Table {
    limits: Limits,
    seats: Mutex<Seats>,
    closing: AtomicUsize,
    closed: Notify,
}

#[derive(Debug, Default)]
struct Seats {
    next: u64,
    taken: HashMap<u64, (Option<IpAddr>, Arc<Live>)>,
    addresses: HashMap<IpAddr, usize>,
    told: Option<Instant>,
    dropped: usize,
}

/// The place of a connection in the table, which it has until this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    number: u64,
    pub(super) live: Arc<Live>,
    table: Arc<Table>,
}

impl Table {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            seats: Mutex::default(),
            closing: AtomicUsize::new(0),
            closed: Notify::new(),
        }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a new connection, closing others if there are too many. `None` if all of them are processing
    /// requests.
    pub(super) fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Seat> {
        let mut seats = self.seats();
        if let Some(address) = address {
            let from_there = seats.addresses.get(&address).copied().unwrap_or_default();
            let is_there = |of: Option<IpAddr>| of == Some(address);
            if from_there >= self.limits.address
                && !self.drop_some(&mut seats, self.limits.address, is_there)
            {
                return None;
            }
        }
        let is_full = seats.taken.len() >= self.limits.total;
        if is_full && !self.drop_some(&mut seats, self.limits.total, |_| true) {
            return None;
        }
        let live = Arc::new(Live::new(Instant::now()));
        let number = seats.next;
        seats.next += 1;
        seats.taken.insert(number, (address, Arc::clone(&live)));
        if let Some(address) = address {
            *seats.addresses.entry(address).or_default() += 1;
        }
        drop(seats);
        Some(Seat { number, live, table: Arc::clone(self) })
    }

    /// Closes some connections, because there are no descriptors.
    pub(super) fn make_room(&self) {
        let mut seats = self.seats();
        self.drop_some(&mut seats, self.limits.total, |_| true);
    }

    /// Closes those that have been too long as they are.
    pub(super) fn drop_overdue(&self, times: &Times, now: Instant) {
        let mut seats = self.seats();
        let overdue = seats.taken.iter().filter(|(_, (_, live))| live.doom_overdue(times, now));
        let overdue: Vec<u64> = overdue.map(|(number, _)| *number).collect();
        for number in overdue {
            self.leaves(&mut seats, number);
        }
    }

    /// Waits until most of the closing connections have ended.
    pub(super) async fn closed_enough(&self) {
        let waited = async {
            while self.closing.load(Ordering::Acquire) > CLOSING {
                self.closed.notified().await;
            }
        };
        // Whatever delays them, others wait to be accepted.
        let _ = tokio::time::timeout(CLOSING_WAIT, waited).await;
    }

    /// Closes a share of the connections that have waited longest, those without a request first; returns whether
    /// there were any.
    fn drop_some(
        &self,
        seats: &mut Seats,
        limit: usize,
        is_one: impl Fn(Option<IpAddr>) -> bool,
    ) -> bool {
        let mut waiting: Vec<(Rank, Instant, u64)> = seats
            .taken
            .iter()
            .filter(|(_, (address, _))| is_one(*address))
            .filter_map(|(number, (_, live))| {
                live.rank().map(|(rank, since)| (rank, since, *number))
            })
            .collect();
        let count = (limit / BATCH).max(1).min(waiting.len());
        if count == 0 {
            return false;
        }
        waiting.select_nth_unstable(count - 1);
        waiting.truncate(count);
        let mut dropped = 0;
        for (_, _, number) in waiting {
            // It may have got a request in the meantime.
            if seats.taken.get(&number).is_some_and(|(_, live)| live.doom()) {
                self.leaves(seats, number);
                dropped += 1;
            }
        }
        seats.dropped += dropped;
        if dropped > 0 && seats.told.is_none_or(|told| told.elapsed() >= REMINDER) {
            seats.told = Some(Instant::now());
            tracing::warn!(
                connections = seats.taken.len(),
                dropped = seats.dropped,
                "Too many connections; closing those that have waited longest without sending a request"
            );
            seats.dropped = 0;
        }
        dropped > 0
    }

    /// Takes a connection out that is about to be closed.
    fn leaves(&self, seats: &mut Seats, number: u64) {
        if seats.remove(number) {
            self.closing.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Seats {
    fn remove(&mut self, number: u64) -> bool {
        let Some((address, _)) = self.taken.remove(&number) else { return false };
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

impl Drop for Seat {
    fn drop(&mut self) {
        let was_there = self.table.seats().remove(self.number);
        if !was_there {
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

    fn is_doomed(seat: &Seat) -> bool {
        !seat.table.seats().taken.contains_key(&seat.number)
    }

    #[test]
    fn the_limits_leave_descriptors_for_the_rest() {
        assert_eq!(Limits::new(1_024, None, None), Limits { total: 683, address: 341 });
        assert_eq!(Limits::new(65_536, None, None), Limits { total: 8_192, address: 4_096 });
        assert_eq!(Limits::new(1_024, Some(5_000), Some(5_000)).total, 683);
        assert_eq!(Limits::new(1_024, Some(100), Some(7)), Limits { total: 100, address: 7 });
        assert_eq!(Limits::new(1, Some(0), Some(0)), Limits { total: 1, address: 1 });
    }

    #[test]
    fn at_the_limit_the_longest_wait_without_a_request_ends() {
        let table = table(3, 3);
        let silent = table.admit(address(1)).unwrap();
        let idle = table.admit(address(2)).unwrap();
        assert!(idle.live.begins(false, false));
        idle.live.ends();
        let busy = table.admit(address(3)).unwrap();
        assert!(busy.live.begins(false, false));
        let first = table.admit(address(4)).unwrap();
        assert!(is_doomed(&silent) && !is_doomed(&idle));
        assert!(first.live.begins(false, false));
        let second = table.admit(address(5)).unwrap();
        assert!(is_doomed(&idle) && !is_doomed(&busy) && !is_doomed(&first));
        assert!(second.live.begins(false, false));
        assert!(table.admit(address(6)).is_none(), "all are worked on");
        drop(busy);
        assert!(table.admit(address(6)).is_some());
    }

    #[test]
    fn a_request_that_waits_for_its_body_gives_way() {
        let table = table(1, 1);
        let slow = table.admit(address(1)).unwrap();
        assert!(slow.live.begins(false, true));
        let next = table.admit(address(2)).unwrap();
        assert!(is_doomed(&slow));
        assert!(next.live.begins(false, true));
        next.live.has_sent();
        assert!(table.admit(address(3)).is_none());
    }

    #[test]
    fn an_address_has_a_limit_of_its_own() {
        let table = table(10, 2);
        let other = table.admit(address(9)).unwrap();
        let from_one: Vec<Seat> = (0..5).map(|_| table.admit(address(1)).unwrap()).collect();
        assert_eq!(table.seats().addresses[&address(1).unwrap()], 2);
        assert!(!is_doomed(&other));
        // A proxy of ours has no limit.
        let of_proxy: Vec<Seat> = (0..5).map(|_| table.admit(None).unwrap()).collect();
        assert!(of_proxy.iter().all(|seat| !is_doomed(seat)));
        drop((other, from_one, of_proxy));
        assert!(table.seats().taken.is_empty() && table.seats().addresses.is_empty());
        assert_eq!(table.closing.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn what_is_overdue_goes() {
        let table = table(10, 10);
        let silent = table.admit(address(1)).unwrap();
        let busy = table.admit(address(1)).unwrap();
        assert!(busy.live.begins(false, false));
        table.drop_overdue(&Times::DEFAULT, Instant::now() + Duration::from_secs(11));
        assert!(is_doomed(&silent) && !is_doomed(&busy));
    }
}
