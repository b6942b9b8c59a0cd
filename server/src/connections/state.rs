//! The state of one connection, and the time of its last change.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How long a connection may stay in each state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// The time for a request's head: from the accept, or from the first byte of a later request.
    pub(super) head: Duration,
    /// The time between two requests.
    pub(super) idle: Duration,
    /// The time in which a client must read at least a part of an answer.
    pub(super) unread: Duration,
}

impl Timeouts {
    /// The timeouts of the gateway.
    pub(super) const DEFAULT: Self = Self {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(60),
        unread: Duration::from_secs(30),
    };
}

/// The order in which connections are closed when there are too many: the smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// It has not sent the complete head of a request.
    Unfinished,
    /// It is between two requests.
    Idle,
    /// All its requests wait for the rest of their bodies.
    Sending,
}

/// An open connection. The task that serves it reports events here, and the table of connections closes it.
#[derive(Debug)]
pub(super) struct ConnectionState {
    inner: Mutex<Inner>,
    /// Makes the connection's task drop the connection.
    pub(super) close: Notify,
}

#[derive(Debug)]
struct Inner {
    /// When the connection entered its current state.
    since: Instant,
    /// The number of requests whose heads have arrived and whose answers have not been sent completely.
    requests: usize,
    /// The number of those requests whose bodies have not arrived completely.
    bodies: usize,
    /// Whether a request has been answered.
    answered: bool,
    /// With HTTP/1: whether a part of the next request has arrived.
    begun: bool,
    /// Whether the connection is HTTP/2. There, bytes between requests may be control frames, such as pings.
    is_multiplexed: bool,
    /// Since when the client has not accepted any bytes of an answer.
    stuck: Option<Instant>,
    is_closing: bool,
}

impl ConnectionState {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            inner: Mutex::new(Inner {
                since: now,
                requests: 0,
                bodies: 0,
                answered: false,
                begun: false,
                is_multiplexed: false,
                stuck: None,
                is_closing: false,
            }),
            close: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that bytes have arrived.
    pub(super) fn on_read(&self) {
        let mut inner = self.lock();
        let begins = inner.answered && inner.requests == 0 && !inner.begun;
        // The first head has its time from the accept, so its bytes do not restart it.
        if begins && !inner.is_multiplexed {
            inner.begun = true;
            inner.since = Instant::now();
        }
    }

    /// Notes that bytes were written, or that the client does not accept any now.
    pub(super) fn on_write(&self, is_stuck: bool) {
        let mut inner = self.lock();
        if !is_stuck {
            inner.stuck = None;
        } else if inner.stuck.is_none() {
            inner.stuck = Some(Instant::now());
        }
    }

    /// Notes that the head of a request has arrived. Returns `false` if the connection is being closed: then the
    /// request must not be processed.
    pub(super) fn on_request(&self, is_multiplexed: bool, has_body: bool) -> bool {
        let mut inner = self.lock();
        if inner.is_closing {
            return false;
        }
        // Of several HTTP/2 requests, only the first one restarts the time.
        if inner.requests == 0 {
            inner.since = Instant::now();
        }
        inner.is_multiplexed = is_multiplexed;
        inner.begun = false;
        inner.requests += 1;
        inner.bodies += usize::from(has_body);
        true
    }

    /// Notes that the body of a request has arrived, or is no longer read.
    pub(super) fn on_body_end(&self) {
        self.lock().bodies -= 1;
    }

    /// Notes that a request was answered.
    pub(super) fn on_answered(&self) {
        let mut inner = self.lock();
        inner.requests -= 1;
        inner.answered = true;
        if inner.requests == 0 {
            inner.since = Instant::now();
        }
    }

    /// Returns the rank among the connections that can be closed, and since when it has that rank; `None` while a
    /// request is being processed.
    pub(super) fn rank(&self) -> Option<(Rank, Instant)> {
        self.lock().rank()
    }

    /// Closes the connection unless a request is being processed; returns whether it did.
    pub(super) fn close_unless_busy(&self) -> bool {
        self.close_if(|inner| inner.rank().is_some())
    }

    /// Closes the connection if it has exceeded a timeout; returns whether it did.
    pub(super) fn close_overdue(&self, timeouts: &Timeouts, now: Instant) -> bool {
        self.close_if(|inner| inner.is_overdue(timeouts, now))
    }

    /// The check and the decision are made under one lock, so that no request begins in between.
    fn close_if(&self, is_due: impl Fn(&Inner) -> bool) -> bool {
        let mut inner = self.lock();
        if inner.is_closing || !is_due(&inner) {
            return false;
        }
        inner.is_closing = true;
        // Stored if the task does not wait at this moment, so it is never lost.
        self.close.notify_one();
        true
    }
}

impl Inner {
    fn rank(&self) -> Option<(Rank, Instant)> {
        let rank = match self {
            Self { requests: 0, answered: true, begun: false, .. } => Rank::Idle,
            Self { requests: 0, .. } => Rank::Unfinished,
            // One request that is being answered makes the whole connection busy.
            Self { requests, bodies, .. } if requests == bodies => Rank::Sending,
            _ => return None,
        };
        Some((rank, self.since))
    }

    fn is_overdue(&self, timeouts: &Timeouts, now: Instant) -> bool {
        // Saturating, because `now` was read before the lock, and the state may have changed since.
        let over = |since: Instant, limit: Duration| now.saturating_duration_since(since) > limit;
        // Checked first: while a request is answered, there is no rank.
        if self.stuck.is_some_and(|stuck| over(stuck, timeouts.unread)) {
            return true;
        }
        match self.rank() {
            Some((Rank::Unfinished, since)) => over(since, timeouts.head),
            Some((Rank::Idle, since)) => over(since, timeouts.idle),
            // Bodies have their own limits, in `request_body.rs`.
            Some((Rank::Sending, _)) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: Timeouts = Timeouts::DEFAULT;

    fn rank(state: &ConnectionState) -> Option<Rank> {
        state.rank().map(|(rank, _)| rank)
    }

    fn is_over(state: &ConnectionState, seconds: u64) -> bool {
        state.lock().is_overdue(&TIMEOUTS, Instant::now() + Duration::from_secs(seconds))
    }

    #[test]
    fn a_connection_has_10_s_for_a_head_and_60_s_between_requests() {
        let state = ConnectionState::new(Instant::now());
        state.on_read();
        assert_eq!(rank(&state), Some(Rank::Unfinished));
        assert!(!is_over(&state, 9) && is_over(&state, 11));
        assert!(state.on_request(false, true));
        assert_eq!(rank(&state), Some(Rank::Sending));
        state.on_body_end();
        assert_eq!(rank(&state), None);
        assert!(!is_over(&state, 3_600), "runs have their own limits");
        state.on_answered();
        assert_eq!(rank(&state), Some(Rank::Idle));
        assert!(!is_over(&state, 59) && is_over(&state, 61));
        state.on_read();
        assert_eq!(rank(&state), Some(Rank::Unfinished));
        assert!(!is_over(&state, 9) && is_over(&state, 11));
    }

    #[test]
    fn http_2_control_frames_do_not_begin_a_request() {
        let state = ConnectionState::new(Instant::now());
        assert!(state.on_request(true, false));
        state.on_answered();
        state.on_read();
        assert_eq!(rank(&state), Some(Rank::Idle));
        assert!(is_over(&state, 61));
    }

    #[test]
    fn a_connection_with_an_unread_answer_is_closed() {
        let state = ConnectionState::new(Instant::now());
        assert!(state.on_request(false, false));
        state.on_write(true);
        assert!(!is_over(&state, 29) && is_over(&state, 31));
        state.on_write(false);
        assert!(!is_over(&state, 31));
    }

    #[test]
    fn a_closing_connection_begins_no_request() {
        let state = ConnectionState::new(Instant::now());
        assert!(state.on_request(false, false));
        assert!(!state.close_unless_busy(), "a request is being processed");
        state.on_answered();
        assert!(state.close_unless_busy());
        assert!(!state.close_unless_busy(), "it is already closing");
        assert!(!state.on_request(false, false));
    }
}
