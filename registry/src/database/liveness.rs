//! Distinguishes an unresponsive database from a slow one.
//!
//! A stopped machine and a cut cable send no reset, so a client would wait forever. The duration of a statement is no
//! indication, because a long statement, a lock and a slow network look the same from outside. So one more connection
//! is held open only for liveness probes, which are answered after one round trip, whatever else the database does.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The interval between an answer and the next probe.
const EVERY: Duration = Duration::from_millis(250);
/// After how long without an answer it is tried whether the connection is to blame.
const DOUBT: Duration = Duration::from_millis(750);
/// How long a probe may stay unanswered. Together with [`EVERY`] before it, a caller gets an error within two
/// seconds.
const SILENCE: Duration = Duration::from_millis(1_500);
/// The time limit for opening a connection, which takes several round trips.
const OPENING: Duration = Duration::from_secs(5);
/// The time limit for closing the connection.
const CLOSING: Duration = Duration::from_secs(1);

/// The known state of the database.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// It does not answer.
    silent: bool,
    /// When it last answered on a new connection while the old one stayed silent: connections of the same age may be
    /// dead too.
    renewed: Option<Instant>,
}

/// Knows whether the database is silent.
#[derive(Debug, Clone)]
pub(crate) struct Liveness(watch::Receiver<State>);

impl Liveness {
    /// Returns whether the database is silent now.
    pub(crate) fn is_silent(&self) -> bool {
        self.0.borrow().silent
    }

    /// Returns when a caller that has waited since now can stop waiting.
    pub(crate) async fn lost(&self) {
        let mut states = self.0.clone();
        let silence = states.wait_for(|state| state.silent);
        let death = async {
            self.doubt().await;
            sleep(SILENCE - DOUBT).await;
        };
        let news = tokio::select! {
            silence = silence => silence.is_ok(),
            () = death => true,
        };
        if !news {
            // The probe has stopped, and the state is unknown.
            std::future::pending().await
        }
    }

    /// Returns whether a connection of this age is one that may have died without a word.
    pub(crate) fn doubts(&self, age: Duration) -> bool {
        self.0.borrow().renewed.is_some_and(|at| age > at.elapsed())
    }

    /// Returns as soon as connections that are open now [may be dead](Self::doubts).
    pub(crate) async fn doubt(&self) {
        let mut states = self.0.clone();
        let known = states.borrow_and_update().renewed;
        if states.wait_for(|state| state.renewed != known).await.is_err() {
            std::future::pending().await
        }
    }
}

/// The task that probes the database.
pub(crate) struct Probe {
    liveness: Liveness,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Probe {
    /// Starts to ask.
    pub(crate) fn start(options: PgConnectOptions) -> Self {
        let (state, states) = watch::channel(State::default());
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let stopped = stop.clone();
        tasks.spawn(async move {
            let mut questions = Questions { options, state, connection: None };
            stopped.run_until_cancelled(questions.ask_on()).await;
            if let Some(connection) = questions.connection {
                let _ = timeout(CLOSING, connection.close()).await;
            }
        });
        tasks.close();
        Self { liveness: Liveness(states), stop, tasks }
    }

    /// Returns what it has found, now and later.
    pub(crate) fn liveness(&self) -> Liveness {
        self.liveness.clone()
    }

    /// Stops asking and closes the connection.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Questions {
    options: PgConnectOptions,
    state: watch::Sender<State>,
    connection: Option<PgConnection>,
}

/// The result of a probe.
enum Asked {
    /// It was answered.
    Answered,
    /// Its connection broke. That is not silence: requests on other connections get their own errors at once.
    Broken,
    /// It was not answered, and a new connection was opened meanwhile.
    Renewed(PgConnection),
}

impl Questions {
    async fn ask_on(&mut self) {
        loop {
            let Some(connection) = &mut self.connection else {
                self.connect().await;
                continue;
            };
            sleep(EVERY).await;
            let asked = ask(connection, &self.options, &self.state).await;
            match asked {
                Asked::Answered => hear(&self.state, None),
                Asked::Broken => {
                    hear(&self.state, None);
                    self.connection = None;
                }
                Asked::Renewed(connection) => {
                    hear(&self.state, Some(Instant::now()));
                    self.connection = Some(connection);
                }
            }
        }
    }

    /// Tries once to open a connection.
    async fn connect(&mut self) {
        match timeout(OPENING, self.options.connect()).await {
            Ok(Ok(connection)) => {
                self.connection = Some(connection);
                hear(&self.state, None);
            }
            Ok(Err(_)) => {
                hear(&self.state, None);
                sleep(EVERY).await;
            }
            Err(_) => fall_silent(&self.state),
        }
    }
}

/// Probes once, without a time limit; if it takes long, also on a new connection.
async fn ask(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
    state: &watch::Sender<State>,
) -> Asked {
    let mut answer = std::pin::pin!(connection.ping());
    // An answer that has arrived is seen before the time is, also by a process that was held up.
    match timeout(DOUBT, &mut answer).await {
        Ok(Ok(())) => return Asked::Answered,
        Ok(Err(_)) => return Asked::Broken,
        Err(_) => {}
    }
    let mut other = std::pin::pin!(connect_anew(options));
    let mut patience = std::pin::pin!(sleep(SILENCE - DOUBT));
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => {
                return if answer.is_ok() { Asked::Answered } else { Asked::Broken };
            }
            other = &mut other => return Asked::Renewed(other),
            () = &mut patience, if !state.borrow().silent => fall_silent(state),
        }
    }
}

/// Tries until a connection is open.
async fn connect_anew(options: &PgConnectOptions) -> PgConnection {
    loop {
        match timeout(OPENING, options.connect()).await {
            Ok(Ok(connection)) => return connection,
            Ok(Err(_)) => sleep(EVERY).await,
            Err(_) => {}
        }
    }
}

fn fall_silent(state: &watch::Sender<State>) {
    let fell = state.send_if_modified(|state| !std::mem::replace(&mut state.silent, true));
    if fell {
        tracing::error!("The database is silent; requests that need it are refused");
    }
}

fn hear(state: &watch::Sender<State>, renewed: Option<Instant>) {
    let mut was_silent = false;
    state.send_if_modified(|state| {
        was_silent = std::mem::take(&mut state.silent);
        state.renewed = renewed.or(state.renewed);
        was_silent || renewed.is_some()
    });
    if was_silent {
        tracing::info!("The database answers again");
    }
}
