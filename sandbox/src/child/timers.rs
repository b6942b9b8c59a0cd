//! A program's timers and its clock: the machine's, or that of a run that can be repeated.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::child::process::monotonic;
use crate::limits::MAX_TIMERS;

/// The number of times that a program can read a repeatable clock before it moves by a millisecond. So a loop that
/// waits for a time ends, and ends after the same number of rounds in every run.
const READS_PER_MS: u32 = 1000;

/// An active timer.
struct Timer {
    id: u64,
    repeats: bool,
}

/// The clock of a run that can be repeated: its events alone determine what the program reads. Times are since the
/// program's start.
struct Repeatable {
    epoch_ms: i64,
    now: Duration,
    /// Timers that are due until then may fire.
    granted: Duration,
    /// The timer that the host knows to be next.
    announced: Option<Duration>,
    reads: u32,
}

/// The program's timers and its time.
#[derive(Default)]
pub(crate) struct Timers {
    repeatable: Option<Repeatable>,
    /// By the time when they fire, and for equal times in the order in which they were set.
    queue: BTreeMap<(Duration, u64), Timer>,
    places: HashMap<u64, (Duration, u64)>,
    last_id: u64,
    last_turn: u64,
}

impl Timers {
    /// Makes the clock repeatable. It begins at this instant.
    pub(crate) fn repeat_from(&mut self, epoch_ms: i64) {
        self.repeatable = Some(Repeatable {
            epoch_ms,
            now: Duration::ZERO,
            granted: Duration::ZERO,
            announced: None,
            reads: 0,
        });
    }

    pub(crate) fn is_repeatable(&self) -> bool {
        self.repeatable.is_some()
    }

    /// Returns the program's time in whole milliseconds, so that it cannot serve as a precise stopwatch.
    pub(crate) fn now_ms(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "exact until far beyond the year 200 000")]
        match &mut self.repeatable {
            Some(clock) => {
                clock.reads += 1;
                if clock.reads == READS_PER_MS {
                    clock.reads = 0;
                    clock.now += Duration::from_millis(1);
                }
                clock.epoch_ms as f64 + clock.now.as_millis() as f64
            }
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
        let due = match &self.repeatable {
            // At least a millisecond, as in Node.js: otherwise timers that set timers would never let the time reach
            // that of the next answer.
            Some(clock) => {
                let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                clock.now + Duration::from_millis(wait.max(1))
            }
            None => monotonic() + wait,
        };
        self.last_turn += 1;
        self.queue.insert((due, self.last_turn), Timer { id, repeats });
        self.places.insert(id, (due, self.last_turn));
        Some(id)
    }

    pub(crate) fn disarm(&mut self, id: u64) {
        if let Some(place) = self.places.remove(&id) {
            self.queue.remove(&place);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the time until the next timer is due, for a wait. On a repeatable clock, the host ends the wait.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let ((due, _), _) = self.queue.first_key_value()?;
        self.repeatable.is_none().then(|| due.saturating_sub(monotonic()))
    }

    /// Returns whether a timer is set that fires only once.
    pub(crate) fn has_one_shot(&self) -> bool {
        self.queue.values().any(|timer| !timer.repeats)
    }

    /// Removes the next timer if it is due, and returns its id.
    pub(crate) fn take_due(&mut self) -> Option<u64> {
        let entry = self.queue.first_entry()?;
        let (due, _) = *entry.key();
        match &mut self.repeatable {
            Some(clock) if due <= clock.granted => clock.now = clock.now.max(due),
            None if due <= monotonic() => {}
            _ => return None,
        }
        let Timer { id, .. } = entry.remove();
        self.places.remove(&id);
        Some(id)
    }

    /// Returns the time of the next timer on a repeatable clock, in milliseconds, if the host does not know it.
    pub(crate) fn announce(&mut self) -> Option<u64> {
        let clock = self.repeatable.as_mut()?;
        let ((due, _), _) = self.queue.first_key_value()?;
        if clock.announced == Some(*due) {
            return None;
        }
        clock.announced = Some(*due);
        u64::try_from(due.as_millis()).ok()
    }

    /// Lets the timers fire that are due until this time.
    pub(crate) fn grant(&mut self, at_ms: u64) {
        if let Some(clock) = &mut self.repeatable {
            clock.granted = clock.granted.max(Duration::from_millis(at_ms));
        }
    }

    /// Moves a repeatable clock to the time that the host has stated last, which is that of the answer that follows.
    pub(crate) fn answered(&mut self) {
        if let Some(clock) = &mut self.repeatable {
            clock.now = clock.now.max(clock.granted);
        }
    }
}
