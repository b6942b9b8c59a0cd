//! Keeps programs from waiting for an upstream that does not answer.
//!
//! After several failures in a row an upstream is not called for a time; then one call finds out whether it answers again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The number of failures in a row after which an upstream is not called for a time.
pub(super) const FAILURES: u32 = 5;

/// How long it is not called at first. Each further failure doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// The longest time for which it is not called.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A call that its caller gives up after this time is a failure of the upstream.
const NO_ANSWER: Duration = Duration::from_secs(10);

/// What is known of the calls of one upstream by one tenant.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Until when it is not called, and how long that was in total.
    paused: Option<(Instant, Duration)>,
    /// Whether a call is finding out whether it answers again.
    is_probed: bool,
}

/// A call that was admitted. Without a result it counts as given up.
#[derive(Debug)]
pub(super) struct Attempt {
    breaker: Arc<Breaker>,
    began: Instant,
    has_result: bool,
}

impl Breaker {
    /// Admits a call.
    ///
    /// # Errors
    /// Returns how long the upstream is not called.
    pub(super) fn admit(self: &Arc<Self>, now: Instant) -> Result<Attempt, Duration> {
        let mut state = self.state();
        if let Some((until, _)) = state.paused {
            let left = until.saturating_duration_since(now);
            if !left.is_zero() || state.is_probed {
                // While another call finds out, this one need not wait as well.
                return Err(left.max(Duration::from_secs(1)));
            }
            state.is_probed = true;
        }
        Ok(Attempt { breaker: Arc::clone(self), began: now, has_result: false })
    }

    /// Returns whether the upstream is not called at present.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.state().paused.is_some_and(|(until, _)| until > now)
    }

    fn failed(&self, now: Instant) {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1);
        state.is_probed = false;
        if state.failures < FAILURES {
            return;
        }
        // Calls that began before the pause fail during it, and must not prolong it.
        if state.paused.is_some_and(|(until, _)| until > now) {
            return;
        }
        let pause = match state.paused {
            Some((_, pause)) => (pause * 2).min(LONGEST_PAUSE),
            None => FIRST_PAUSE,
        };
        state.paused = Some((now + pause, pause));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt {
    /// Notes that the upstream answered, even if with an error.
    pub(super) fn answered(mut self) {
        self.has_result = true;
        *self.breaker.state() = State::default();
    }

    /// Notes that it could not be reached, or that the connection was lost.
    pub(super) fn failed(mut self) {
        self.has_result = true;
        self.breaker.failed(Instant::now());
    }

    fn given_up(&self, now: Instant) {
        if now.saturating_duration_since(self.began) >= NO_ANSWER {
            self.breaker.failed(now);
        } else {
            // Nothing was found out, so the next call does.
            self.breaker.state().is_probed = false;
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.has_result {
            self.given_up(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// Fails as often as needed for a pause; returns when it began.
    fn broken() -> (Arc<Breaker>, Instant) {
        let (breaker, now) = (Arc::new(Breaker::default()), Instant::now());
        for _ in 0..FAILURES {
            let mut attempt = breaker.admit(now).unwrap();
            attempt.has_result = true;
            breaker.failed(now);
        }
        (breaker, now)
    }

    #[test]
    fn an_upstream_that_fails_is_paused_and_probed_by_one_call() {
        let (breaker, now) = broken();
        assert_eq!(breaker.admit(now + seconds(1)).unwrap_err(), seconds(4));
        assert!(breaker.is_open(now + seconds(4)) && !breaker.is_open(now + seconds(5)));
        let probe = breaker.admit(now + seconds(5)).unwrap();
        assert_eq!(breaker.admit(now + seconds(5)).unwrap_err(), seconds(1));
        // Twice as long, up to the longest.
        let mut at = now + seconds(5);
        breaker.failed(at);
        for pause in [10, 20, 40, 60, 60] {
            assert!(breaker.admit(at + seconds(pause) - Duration::from_millis(1)).is_err());
            at += seconds(pause);
            let mut attempt = breaker.admit(at).unwrap();
            attempt.has_result = true;
            breaker.failed(at);
        }
        // An answer ends it, and all failures are forgotten.
        breaker.admit(at + seconds(60)).unwrap().answered();
        let after: Vec<_> = (0..100).map(|_| breaker.admit(at)).collect();
        assert!(after.iter().all(Result::is_ok));
        drop(probe);
    }

    #[test]
    fn failures_count_only_in_a_row() {
        let breaker = Arc::new(Breaker::default());
        for _ in 0..20 {
            for _ in 0..FAILURES - 1 {
                breaker.admit(Instant::now()).unwrap().failed();
            }
            breaker.admit(Instant::now()).unwrap().answered();
        }
        breaker.admit(Instant::now()).unwrap();
    }

    #[test]
    fn calls_that_began_before_a_pause_do_not_prolong_it() {
        let (breaker, now) = broken();
        for _ in 0..50 {
            breaker.failed(now + seconds(4));
        }
        breaker.admit(now + seconds(5)).unwrap();
    }

    /// A user who cancels soon says nothing about the upstream; one who waits long does.
    #[test]
    fn a_call_that_is_given_up_counts_if_it_waited_long() {
        let breaker = Arc::new(Breaker::default());
        for _ in 0..2 * FAILURES {
            drop(breaker.admit(Instant::now()).unwrap());
        }
        for _ in 0..FAILURES {
            let attempt = breaker.admit(Instant::now()).unwrap();
            attempt.given_up(Instant::now() + NO_ANSWER);
        }
        breaker.admit(Instant::now()).unwrap_err();
        // A probe that is cancelled lets the next call find out.
        let (breaker, now) = broken();
        drop(breaker.admit(now + seconds(5)).unwrap());
        breaker.admit(now + seconds(5)).unwrap();
    }
}
