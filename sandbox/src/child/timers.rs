//! A program's timers and its clock, which is the machine's or is frozen and advanced only by timers.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::child::process::monotonic;
use crate::limits::MAX_TIMERS;

/// An active timer.
struct Timer {
    id: u64,
    /// When it fires, on the monotonic clock of the machine.
    real: Duration,
    repeats: bool,
}

/// The program's timers and its time.
#[derive(Default)]
pub(crate) struct Timers {
    /// Frozen time: the given instant, and the amount by which fired timers have advanced it.
    frozen: Option<(i64, Duration)>,
    queue: BTreeMap<(Duration, u64), Timer>,
    places: HashMap<u64, (Duration, u64)>,
    last_id: u64,
    last_turn: u64,
}

impl Timers {
    pub(crate) fn freeze(&mut self, epoch_ms: i64) {
        self.frozen = Some((epoch_ms, Duration::ZERO));
    }

    /// Returns the program's time in whole milliseconds, so that it cannot serve as a precise stopwatch.
    pub(crate) fn now_ms(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "exact until far beyond the year 200 000")]
        match self.frozen {
            Some((epoch_ms, moved)) => epoch_ms as f64 + moved.as_millis() as f64,
            None => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                now.as_millis() as f64
            }
        }
    }

    /// Sets a timer. `id` 0 requests a new one; `None` means that the limit is reached.
    pub(crate) fn arm(&mut self, wait: Duration, id: u64, repeats: bool) -> Option<u64> {
        // A timer that repeats has just left the queue, so setting it again always succeeds.
        if self.queue.len() >= MAX_TIMERS {
            return None;
        }
        let id = if id == 0 {
            self.last_id += 1;
            self.last_id
        } else {
            id
        };
        let real = monotonic() + wait;
        // With frozen time, timers are ordered by their requested delays, not by the time of the request.
        let due = self.frozen.map_or(real, |(_, moved)| moved + wait);
        // Timers that are due at the same time fire in the order in which they were set.
        self.last_turn += 1;
        self.queue.insert((due, self.last_turn), Timer { id, real, repeats });
        self.places.insert(id, (due, self.last_turn));
        Some(id)
    }

    pub(crate) fn disarm(&mut self, id: u64) {
        if let Some(place) = self.places.remove(&id) {
            self.queue.remove(&place);
        }
    }

    /// Returns the time until the next timer is due while `in_flight` tool calls are unanswered; `None` if no timer
    /// can fire before an answer arrives.
    pub(crate) fn next(&self, in_flight: u64) -> Option<Duration> {
        let (_, timer) = self.queue.first_key_value()?;
        match self.frozen {
            Some(_) if in_flight > 0 => None,
            Some(_) => Some(Duration::ZERO),
            None => Some(timer.real.saturating_sub(monotonic())),
        }
    }

    /// Returns whether a timer is set that fires only once.
    pub(crate) fn has_one_shot(&self) -> bool {
        self.queue.values().any(|timer| !timer.repeats)
    }

    /// Removes the next timer if it is due while `in_flight` tool calls are unanswered, and returns its id.
    ///
    /// On a frozen clock, calls take no time: timers wait for all calls, and then fire at once. Otherwise the order of
    /// timers and answers would depend on how busy the machine is.
    pub(crate) fn take_due(&mut self, in_flight: u64) -> Option<u64> {
        if !self.next(in_flight)?.is_zero() {
            return None;
        }
        let entry = self.queue.first_entry()?;
        let ((due, _), Timer { id, .. }) = entry.remove_entry();
        self.places.remove(&id);
        if let Some((_, moved)) = &mut self.frozen {
            *moved = due.max(*moved);
        }
        Some(id)
    }
}
