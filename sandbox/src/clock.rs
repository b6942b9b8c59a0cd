//! The wall clock of a run, which is paused while a human decides.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The wall clock of one run.
#[derive(Clone, Debug)]
pub struct WallClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    spent: Duration,
    running_since: Instant,
    pauses: usize,
}

impl WallClock {
    /// Starts a clock.
    pub(crate) fn start() -> WallClock {
        let state = State { spent: Duration::ZERO, running_since: Instant::now(), pauses: 0 };
        WallClock { shared: Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() }) }
    }

    /// Stops the clock until the guard is dropped. Several pauses may overlap.
    #[must_use = "the clock runs again as soon as the guard is dropped"]
    pub fn pause(&self) -> WallPause {
        let mut state = self.lock();
        if state.pauses == 0 {
            state.spent = state.spent();
        }
        state.pauses += 1;
        drop(state);
        // Not `notify_waiters`, which is lost while `expired` does not wait yet.
        self.shared.changed.notify_one();
        WallPause { clock: self.clone() }
    }

    /// Returns the elapsed time without pauses.
    #[must_use]
    pub fn spent(&self) -> Duration {
        self.lock().spent()
    }

    /// Waits until `limit` has been spent. One caller at a time.
    pub(crate) async fn expired(&self, limit: Duration) {
        loop {
            let (left, paused) = {
                let state = self.lock();
                (limit.saturating_sub(state.spent()), state.pauses > 0)
            };
            if paused {
                self.shared.changed.notified().await;
            } else if left.is_zero() {
                return;
            } else {
                tokio::select! {
                    () = self.shared.changed.notified() => {}
                    () = tokio::time::sleep(left) => {}
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn spent(&self) -> Duration {
        if self.pauses > 0 { self.spent } else { self.spent + self.running_since.elapsed() }
    }
}

/// A guard that keeps a [`WallClock`] paused.
#[derive(Debug)]
pub struct WallPause {
    clock: WallClock,
}

impl Drop for WallPause {
    fn drop(&mut self) {
        let mut state = self.clock.lock();
        state.pauses -= 1;
        if state.pauses == 0 {
            state.running_since = Instant::now();
        }
        drop(state);
        self.clock.shared.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_paused_clock_does_not_expire() {
        let clock = WallClock::start();
        let pause = clock.pause();
        let limit = Duration::from_millis(20);
        let early = tokio::time::timeout(Duration::from_millis(80), clock.expired(limit)).await;
        assert!(early.is_err(), "expired while paused");
        assert!(clock.spent() < limit);
        drop(pause);
        clock.expired(limit).await;
        assert!(clock.spent() >= limit);
    }

    #[test]
    fn pauses_nest() {
        let clock = WallClock::start();
        let (first, second) = (clock.pause(), clock.pause());
        let spent = clock.spent();
        drop(first);
        assert_eq!(clock.spent(), spent);
        drop(second);
        assert!(clock.spent() >= spent);
    }
}
