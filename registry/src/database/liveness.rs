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
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// How long a probe may stay unanswered before a second connection is tried, because the first may be dead.
const SUSPECT_AFTER: Duration = Duration::from_millis(750);
/// How long a probe may stay unanswered before the database counts as silent. With [`PROBE_INTERVAL`] before it, a
/// caller gets an error within two seconds.
const SILENT_AFTER: Duration = Duration::from_millis(1_500);
/// The time limit for opening a connection, which takes several round trips.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for closing the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The known state of the database.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// It does not answer.
    silent: bool,
    /// It answered the last probe.
    answered: bool,
    /// When it last answered on a new connection while the old one stayed silent: connections of the same age may be
    /// dead too.
    renewed: Option<Instant>,
}

/// A handle that reports whether the database is silent.
#[derive(Debug, Clone)]
pub(crate) struct Liveness(watch::Receiver<State>);

impl Liveness {
    /// Returns whether the database is silent now.
    pub(crate) fn is_silent(&self) -> bool {
        self.0.borrow().silent
    }

    /// Returns whether the database answered the last probe. It may refuse connections without being silent.
    pub(crate) fn answers(&self) -> bool {
        let state = self.0.borrow();
        state.answered && !state.silent
    }

    /// Completes when a caller that starts to wait now should give up.
    pub(crate) async fn lost(&self) {
        let mut states = self.0.clone();
        let silence = states.wait_for(|state| state.silent);
        // An answer on a new connection suggests that older ones are dead, and this caller may use
        // one of them. It gets the rest of the time limit, because the old connection may just be
        // slow.
        let died = async {
            self.suspected().await;
            sleep(SILENT_AFTER - SUSPECT_AFTER).await;
        };
        let is_known = tokio::select! {
            silence = silence => silence.is_ok(),
            () = died => true,
        };
        if !is_known {
            // The probe has stopped, and the state is unknown.
            std::future::pending().await
        }
    }

    /// Returns whether a connection of this age may be dead without having reported it.
    pub(crate) fn may_be_dead(&self, age: Duration) -> bool {
        self.0.borrow().renewed.is_some_and(|at| age > at.elapsed())
    }

    /// Completes as soon as connections that are open now [may be dead](Self::may_be_dead).
    pub(crate) async fn suspected(&self) {
        let mut states = self.0.clone();
        // Read once, before the wait: only a later renewal concerns the connections that are open
        // now.
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
    /// Starts the task.
    pub(crate) fn start(options: PgConnectOptions) -> Self {
        let (state, states) = watch::channel(State::default());
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let stopped = stop.clone();
        tasks.spawn(async move {
            let mut prober = Prober { options, state, connection: None };
            stopped.run_until_cancelled(prober.probe_forever()).await;
            // An orderly close ends the session at once, but a silent database must not delay the
            // shutdown.
            if let Some(connection) = prober.connection {
                let _ = timeout(CLOSE_TIMEOUT, connection.close()).await;
            }
        });
        tasks.close();
        Self { liveness: Liveness(states), stop, tasks }
    }

    /// Returns a handle to its result, which is updated.
    pub(crate) fn liveness(&self) -> Liveness {
        self.liveness.clone()
    }

    /// Stops the task and closes its connection.
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

struct Prober {
    options: PgConnectOptions,
    state: watch::Sender<State>,
    connection: Option<PgConnection>,
}

/// The result of a probe.
enum ProbeResult {
    /// It was answered.
    Answered,
    /// Its connection broke. That is not silence: requests on other connections get their own errors at once.
    Broken,
    /// It was not answered, and a new connection was opened meanwhile.
    Renewed(PgConnection),
}

impl Prober {
    async fn probe_forever(&mut self) {
        loop {
            let Some(connection) = &mut self.connection else {
                self.connect().await;
                continue;
            };
            sleep(PROBE_INTERVAL).await;
            let result = probe(connection, &self.options, &self.state).await;
            match result {
                ProbeResult::Answered => mark_responsive(&self.state, true, None),
                ProbeResult::Broken => {
                    mark_responsive(&self.state, false, None);
                    self.connection = None;
                }
                ProbeResult::Renewed(connection) => {
                    mark_responsive(&self.state, true, Some(Instant::now()));
                    // Dropping the old connection closes its socket. An orderly close could block
                    // on a dead network.
                    self.connection = Some(connection);
                }
            }
        }
    }

    /// Tries once to open a connection.
    async fn connect(&mut self) {
        match timeout(CONNECT_TIMEOUT, self.options.connect()).await {
            Ok(Ok(connection)) => {
                self.connection = Some(connection);
                mark_responsive(&self.state, true, None);
            }
            // A refusal is an answer too: the requests get their own errors at once.
            Ok(Err(_)) => {
                mark_responsive(&self.state, false, None);
                // A refusal comes at once, so without a pause this would loop as fast as the
                // database refuses.
                sleep(PROBE_INTERVAL).await;
            }
            Err(_) => mark_silent(&self.state),
        }
    }
}

/// Sends one probe and waits without a limit; if the answer takes long, tries to open a new connection meanwhile.
async fn probe(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
    state: &watch::Sender<State>,
) -> ProbeResult {
    // A `Sync` message, which Postgres answers without a table, a lock or the disk.
    let mut answer = std::pin::pin!(connection.ping());
    // `timeout` polls the answer first, so a process that was suspended sees an answer that has arrived.
    match timeout(SUSPECT_AFTER, &mut answer).await {
        Ok(Ok(())) => return ProbeResult::Answered,
        Ok(Err(_)) => return ProbeResult::Broken,
        Err(_) => {}
    }
    let mut other = std::pin::pin!(reconnect(options));
    let mut limit = std::pin::pin!(sleep(SILENT_AFTER - SUSPECT_AFTER));
    loop {
        tokio::select! {
            // In this order: a late answer counts even if a new connection is ready at the same
            // time, so that a slow network does not make every pooled connection suspect.
            biased;
            answer = &mut answer => {
                return if answer.is_ok() { ProbeResult::Answered } else { ProbeResult::Broken };
            }
            other = &mut other => return ProbeResult::Renewed(other),
            // Disabled after it has fired: an elapsed timer is always ready, and the loop would
            // spin.
            () = &mut limit, if !state.borrow().silent => mark_silent(state),
        }
    }
}

/// Retries until a connection is open.
async fn reconnect(options: &PgConnectOptions) -> PgConnection {
    loop {
        match timeout(CONNECT_TIMEOUT, options.connect()).await {
            Ok(Ok(connection)) => return connection,
            Ok(Err(_)) => sleep(PROBE_INTERVAL).await,
            Err(_) => {}
        }
    }
}

fn mark_silent(state: &watch::Sender<State>) {
    let changed = state.send_if_modified(|state| !std::mem::replace(&mut state.silent, true));
    if changed {
        tracing::error!("The database is silent; requests that need it are refused");
    }
}

fn mark_responsive(state: &watch::Sender<State>, answered: bool, renewed: Option<Instant>) {
    let mut was_silent = false;
    // Waiting requests are woken by a change only, not by each of four answers a second.
    state.send_if_modified(|state| {
        was_silent = std::mem::take(&mut state.silent);
        state.answered = answered;
        // The last renewal stays: connections from before it remain suspect.
        state.renewed = renewed.or(state.renewed);
        was_silent || renewed.is_some()
    });
    if was_silent {
        tracing::info!("The database answers again");
    }
}
