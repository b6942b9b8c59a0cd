//! What a run needs to be repeated: its clock and its random numbers.
//!
//! A program has no inputs but its text, its arguments, its clock, its random numbers and the answers of its tools. A
//! repeatable clock stands still while the program computes. It moves to the time of each answer and of each timer, and
//! a timer that is due before an answer fires before it. So a second run with the same seed, whose calls get the same
//! answers in the same order and at the same times, is identical.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

/// Determines all random numbers of a program.
pub type Seed = [u8; 32];

/// The clock and the random numbers of a run that can be repeated.
#[derive(Clone, Debug)]
pub struct Repeatable {
    /// The clock.
    pub clock: ProgramClock,
    /// Seeds `Math.random` and `crypto`.
    pub seed: Seed,
}

/// The clock of a program, shared by those who answer its calls. Times are in milliseconds since the program's start.
#[derive(Clone, Debug)]
pub struct ProgramClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    epoch_ms: i64,
    /// Whether calls take no time, and timers need not be waited for.
    is_virtual: bool,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// The time when the clock stood still last, and when it has run since; `None` while it is held.
    ran: (u64, Option<Instant>),
    /// The time until which timers fire while the clock is held.
    held: Option<u64>,
}

impl ProgramClock {
    /// Starts the clock of a program, which then shows this time, in milliseconds since 1970.
    #[must_use]
    pub fn start(epoch_ms: i64) -> Self {
        let state = State { ran: (0, Some(Instant::now())), held: None };
        Self::new(epoch_ms, false, state)
    }

    /// Creates the clock of a program that is not to wait: its calls take no time, and once none is in flight, its
    /// timers fire at once.
    #[must_use]
    pub fn virtual_time(epoch_ms: i64) -> Self {
        Self::new(epoch_ms, true, State { ran: (0, None), held: None })
    }

    fn new(epoch_ms: i64, is_virtual: bool, state: State) -> Self {
        let (state, changed) = (Mutex::new(state), Notify::new());
        Self { shared: Arc::new(Shared { epoch_ms, is_virtual, state, changed }) }
    }

    /// Returns when the program started, in milliseconds since 1970.
    #[must_use]
    pub fn epoch_ms(&self) -> i64 {
        self.shared.epoch_ms
    }

    /// Returns the present time. While the clock is held, that is the time to which it was moved last.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.state().now_ms()
    }

    /// Holds the clock: until the next recorded answer, which is at this time, only timers move it. `None` lets it run
    /// on from the time that it shows.
    pub fn hold_until(&self, at_ms: Option<u64>) {
        let mut state = self.state();
        let is_held = state.held.is_some();
        match at_ms {
            Some(_) => state.ran = (state.now_ms(), None),
            None if is_held && !self.shared.is_virtual => state.ran.1 = Some(Instant::now()),
            None => {}
        }
        state.held = at_ms;
        drop(state);
        // One waits at most: the run.
        self.shared.changed.notify_one();
    }

    /// Moves a clock that is held to the time of a recorded answer.
    pub fn move_to(&self, at_ms: u64) {
        let mut state = self.state();
        state.ran.0 = state.ran.0.max(at_ms);
    }

    /// Returns whether a timer that is due then cannot fire before the clock is moved.
    pub(crate) fn is_held_before(&self, due_ms: u64) -> bool {
        self.state().held.is_some_and(|held| held < due_ms)
    }

    /// Waits until a timer that is due then may fire, and returns the time. `is_idle` if no call is in flight.
    pub(crate) async fn reach(&self, due_ms: u64, is_idle: bool) -> u64 {
        loop {
            if self.shared.is_virtual && is_idle {
                self.move_to(due_ms);
                return due_ms;
            } else if self.shared.is_virtual {
                // The run asks again after the answer.
                std::future::pending::<()>().await;
            }
            let (held, now) = {
                let state = self.state();
                (state.held, state.now_ms())
            };
            match held {
                Some(held) if due_ms <= held => {
                    self.move_to(due_ms);
                    return due_ms;
                }
                Some(_) => self.shared.changed.notified().await,
                None if due_ms <= now => return now,
                None => tokio::select! {
                    () = self.shared.changed.notified() => {}
                    () = tokio::time::sleep(Duration::from_millis(due_ms - now)) => {}
                },
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn now_ms(&self) -> u64 {
        let (stood, since) = self.ran;
        let ran = since.map_or(Duration::ZERO, |since| since.elapsed());
        stood.saturating_add(u64::try_from(ran.as_millis()).unwrap_or(u64::MAX))
    }
}

/// How long a run that is repeated may compute before its next recorded answer. More than its CPU time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The order in which a program got its answers, for a run that repeats it.
///
/// It holds the program's clock until the last of them is delivered.
#[derive(Debug)]
pub struct AnswerOrder {
    clock: ProgramClock,
    /// The calls and the times of their answers.
    answers: Vec<(u64, u64)>,
    /// The number of answers that were delivered.
    delivered: watch::Sender<usize>,
}

/// The program did not make the call whose answer is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the program did not make call {0} of its record")]
pub struct NotMade(pub u64);

impl AnswerOrder {
    /// Creates it from the calls, each with the time of its answer, in the order of the answers.
    #[must_use]
    pub fn new(clock: ProgramClock, answers: Vec<(u64, u64)>) -> Self {
        clock.hold_until(answers.first().map(|(_, at_ms)| *at_ms));
        Self { clock, answers, delivered: watch::Sender::new(0) }
    }

    /// Waits until the answer to a call is next, and returns its time. The call must then return the answer without
    /// waiting for anything else.
    ///
    /// # Errors
    /// Returns which call the program did not make.
    pub async fn turn_of(&self, call: u64) -> Result<u64, NotMade> {
        let place = self.answers.iter().position(|(id, _)| *id == call);
        let Some(place) = place else { return Err(NotMade(call)) };
        self.reach(place).await?;
        let (_, at_ms) = self.answers[place];
        self.clock.move_to(at_ms);
        self.clock.hold_until(self.answers.get(place + 1).map(|(_, at_ms)| *at_ms));
        self.delivered.send_replace(place + 1);
        Ok(at_ms)
    }

    /// Waits until all answers are delivered. Calls without a recorded answer are made after that.
    ///
    /// # Errors
    /// Returns which call the program did not make.
    pub async fn end(&self) -> Result<(), NotMade> {
        self.reach(self.answers.len()).await
    }

    /// Returns the call whose answer is next; `None` after the last one.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        self.answers.get(*self.delivered.borrow()).map(|(id, _)| *id)
    }

    async fn reach(&self, place: usize) -> Result<(), NotMade> {
        let mut delivered = self.delivered.subscribe();
        loop {
            if *delivered.borrow_and_update() >= place {
                return Ok(());
            }
            // The sender lives as long as `self`, so a failure is only a time-out.
            if tokio::time::timeout(PATIENCE, delivered.changed()).await.is_err() {
                return Err(NotMade(self.next().unwrap_or_default()));
            }
        }
    }
}
