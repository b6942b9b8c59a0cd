//! The state of one connection, and since when.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How long a connection may stay in a state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// From the connection, or from the first byte of a later request, to the end of the request's head.
    pub(super) head: Duration,
    /// Between two requests.
    pub(super) idle: Duration,
    /// With an answer that the client does not read.
    pub(super) unread: Duration,
}

impl Times {
    /// Those in force.
    pub(super) const DEFAULT: Self = Self {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(60),
        unread: Duration::from_secs(30),
    };
}

/// Which connections are closed first when there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// It has not sent the head of a request.
    Unfinished,
    /// It waits between two requests.
    Idle,
    /// Its requests wait for the rest of their bodies.
    Sending,
}

/// A connection that is open.
#[derive(Debug)]
pub(super) struct Live {
    state: Mutex<State>,
    /// Tells the connection's task to drop it.
    pub(super) doomed: Notify,
}

#[derive(Debug)]
struct State {
    /// Since when it is as it is.
    since: Instant,
    /// Requests whose heads have arrived and whose answers have not been sent.
    requests: usize,
    /// Those of them whose bodies have not come.
    bodies: usize,
    /// Whether a request has been answered.
    answered: bool,
    /// Whether HTTP/1 has received a part of the next request.
    begun: bool,
    /// Whether it is HTTP/2, where bytes between requests need not belong to one.
    is_multiplexed: bool,
    /// Since when nothing could be written.
    stuck: Option<Instant>,
    is_doomed: bool,
}

impl Live {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: Mutex::new(State {
                since: now,
                requests: 0,
                bodies: 0,
                answered: false,
                begun: false,
                is_multiplexed: false,
                stuck: None,
                is_doomed: false,
            }),
            doomed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes came.
    pub(super) fn reads(&self) {
        let mut state = self.state();
        let begins = state.answered && state.requests == 0 && !state.begun;
        if begins && !state.is_multiplexed {
            state.begun = true;
            state.since = Instant::now();
        }
    }

    /// Bytes were written, or could not be.
    pub(super) fn writes(&self, is_stuck: bool) {
        let mut state = self.state();
        if !is_stuck {
            state.stuck = None;
        } else if state.stuck.is_none() {
            state.stuck = Some(Instant::now());
        }
    }

    /// The head of a request has arrived. `false` means that the connection is being closed and the request must not
    /// be processed.
    pub(super) fn begins(&self, is_multiplexed: bool, has_body: bool) -> bool {
        let mut state = self.state();
        if state.is_doomed {
            return false;
        }
        if state.requests == 0 {
            state.since = Instant::now();
        }
        state.is_multiplexed = is_multiplexed;
        state.begun = false;
        state.requests += 1;
        state.bodies += usize::from(has_body);
        true
    }

    /// The body of a request has come, or is no longer read.
    pub(super) fn has_sent(&self) {
        self.state().bodies -= 1;
    }

    /// A request was answered.
    pub(super) fn ends(&self) {
        let mut state = self.state();
        state.requests -= 1;
        state.answered = true;
        if state.requests == 0 {
            state.since = Instant::now();
        }
    }

    /// Returns its rank among the connections that can be closed, and since when; `None` while a request is being
    /// processed.
    pub(super) fn rank(&self) -> Option<(Rank, Instant)> {
        self.state().rank()
    }

    /// Closes it unless a request is being processed; returns whether it did.
    pub(super) fn doom(&self) -> bool {
        let mut state = self.state();
        self.doom_if(&mut state, |state| state.rank().is_some())
    }

    /// Closes it if it has been in its state for too long; returns whether it did.
    pub(super) fn doom_overdue(&self, times: &Times, now: Instant) -> bool {
        let mut state = self.state();
        self.doom_if(&mut state, |state| state.is_overdue(times, now))
    }

    fn doom_if(&self, state: &mut State, is_due: impl Fn(&State) -> bool) -> bool {
        if state.is_doomed || !is_due(state) {
            return false;
        }
        state.is_doomed = true;
        self.doomed.notify_one();
        true
    }
}

impl State {
    fn rank(&self) -> Option<(Rank, Instant)> {
        let rank = match self {
            Self { requests: 0, answered: true, begun: false, .. } => Rank::Idle,
            Self { requests: 0, .. } => Rank::Unfinished,
            Self { requests, bodies, .. } if requests == bodies => Rank::Sending,
            _ => return None,
        };
        Some((rank, self.since))
    }

    fn is_overdue(&self, times: &Times, now: Instant) -> bool {
        let over = |since: Instant, limit: Duration| now.saturating_duration_since(since) > limit;
        if self.stuck.is_some_and(|stuck| over(stuck, times.unread)) {
            return true;
        }
        match self.rank() {
            Some((Rank::Unfinished, since)) => over(since, times.head),
            Some((Rank::Idle, since)) => over(since, times.idle),
            // A body has a pace of its own.
            Some((Rank::Sending, _)) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times::DEFAULT;

    fn rank(live: &Live) -> Option<Rank> {
        live.rank().map(|(rank, _)| rank)
    }

    fn is_over(live: &Live, seconds: u64) -> bool {
        let state = live.state();
        state.is_overdue(&TIMES, Instant::now() + Duration::from_secs(seconds))
    }

    #[test]
    fn a_connection_has_ten_seconds_for_a_head_and_sixty_between_requests() {
        let live = Live::new(Instant::now());
        live.reads();
        assert_eq!(rank(&live), Some(Rank::Unfinished));
        assert!(!is_over(&live, 9) && is_over(&live, 11));
        assert!(live.begins(false, true));
        assert_eq!(rank(&live), Some(Rank::Sending));
        live.has_sent();
        assert_eq!(rank(&live), None);
        assert!(!is_over(&live, 3_600), "a run has limits of its own");
        live.ends();
        assert_eq!(rank(&live), Some(Rank::Idle));
        assert!(!is_over(&live, 59) && is_over(&live, 61));
        live.reads();
        assert_eq!(rank(&live), Some(Rank::Unfinished));
        assert!(!is_over(&live, 9) && is_over(&live, 11));
    }

    #[test]
    fn control_frames_of_http_2_begin_no_request() {
        let live = Live::new(Instant::now());
        assert!(live.begins(true, false));
        live.ends();
        live.reads();
        assert_eq!(rank(&live), Some(Rank::Idle));
        assert!(is_over(&live, 61));
    }

    #[test]
    fn an_answer_that_is_not_read_is_given_up() {
        let live = Live::new(Instant::now());
        assert!(live.begins(false, false));
        live.writes(true);
        assert!(!is_over(&live, 29) && is_over(&live, 31));
        live.writes(false);
        assert!(!is_over(&live, 31));
    }

    #[test]
    fn a_connection_that_is_being_closed_begins_nothing() {
        let live = Live::new(Instant::now());
        assert!(live.begins(false, false));
        assert!(!live.doom(), "a request is worked on");
        live.ends();
        assert!(live.doom());
        assert!(!live.doom(), "once");
        assert!(!live.begins(false, false));
    }
}
