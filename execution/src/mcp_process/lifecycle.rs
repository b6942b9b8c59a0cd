//! The lifecycle of one server: start with back-off after failures, use, and stop when idle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::Duration;

use protocol::ToolDescriptor;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::session::{Session, StartFailure, exit_within};

/// A server that ran this long counts as healthy: its crash starts a new series of failures.
const HEALTHY: Duration = Duration::from_secs(60);

/// The delay before a start, by the number of consecutive failures; the last value repeats. A server is started fewer
/// than ten times a minute.
const BACK_OFF: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// The longest delay that a call waits for; a longer one is an error.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// How long to wait for the exit code of a server whose pipe has closed.
const EXIT_WAIT: Duration = Duration::from_secs(2);

/// A server and its history of failures. There is no running server before the first start and after each stop.
#[derive(Debug, Default)]
pub struct Slot {
    /// The server that runs.
    pub running: Option<Arc<Running>>,
    failures: u32,
    not_before: Option<Instant>,
    last_failure: String,
}

impl Slot {
    /// Returns since when its running server is idle; `None` while it is used, and without one.
    pub fn idle_since(&self) -> Option<Instant> {
        self.running.as_ref().and_then(|running| running.idle_since())
    }

    /// Stops its server, and returns once that has exited.
    pub async fn stop(&mut self) {
        if let Some(running) = self.running.clone() {
            self.stopped(running.since.elapsed());
            end(&running).await;
        }
    }

    /// Records a crash of a server that ran for this time.
    fn crashed(&mut self, lived: Duration) {
        if lived >= HEALTHY {
            self.failures = 0;
        }
        self.failed();
    }

    /// Records a failure.
    fn failed(&mut self) {
        self.failures += 1;
        self.not_before = Some(Instant::now() + back_off(self.failures));
    }

    /// Records that a server was stopped after this time because it was idle.
    fn stopped(&mut self, lived: Duration) {
        self.running = None;
        if lived >= HEALTHY {
            self.failures = 0;
            self.not_before = None;
        }
    }
}

/// A server that was started.
pub struct Running {
    /// Its connection.
    pub session: Session,
    since: Instant,
    /// The number of calls in progress.
    pub calls: AtomicUsize,
    last_use: SyncMutex<Instant>,
    /// The tools that it listed last, with the number of its notices at that time.
    pub listed: Mutex<Option<(u64, Arc<Vec<ToolDescriptor>>)>>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("group", &self.session.group).finish_non_exhaustive()
    }
}

impl Running {
    /// Returns whether it can be called.
    pub fn is_alive(&self) -> bool {
        !self.session.service.peer().is_transport_closed() && self.session.ended.borrow().is_none()
    }

    fn idle_since(&self) -> Option<Instant> {
        // The count first: a call that ends in between has set the time before.
        let is_idle = self.calls.load(Ordering::SeqCst) == 0;
        is_idle.then(|| *self.last_use.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns why the server ended; called when its pipe is closed.
    pub async fn exit_reason(&self) -> String {
        let exit = exit_within(&mut self.session.ended.clone(), EXIT_WAIT).await;
        let fault =
            self.session.diagnosis.fault().map(|fault| format!("was stopped because {fault}"));
        // After a fault `pml` closes the pipe, so the exit is only a consequence.
        fault.or(exit).unwrap_or_else(|| "closed its output".to_owned())
    }
}

/// Keeps a running server from counting as idle while this exists.
#[derive(Debug)]
pub struct InUse(pub Arc<Running>);

impl InUse {
    /// Marks a server as in use.
    pub fn new(running: &Arc<Running>) -> Self {
        running.calls.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(running))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // The time first: once the count is zero, the server is idle since then.
        *self.0.last_use.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Why a server was not started.
#[derive(Debug)]
pub enum NotStarted {
    /// It failed repeatedly and is not started again yet.
    BackingOff {
        /// The number of failures in a row.
        failures: u32,
        /// The time until the next start, in seconds.
        wait_s: u64,
        /// The last failure.
        last: String,
    },
    /// No server starts any more.
    Closing,
    /// The start failed.
    Failed(StartFailure),
}

/// Starts a server with `starting` and puts it into its slot, after the delay that earlier failures require. `server` is
/// its name, for the log.
///
/// # Errors
/// Returns why it does not run.
pub async fn start(
    server: String,
    mut slot: OwnedMutexGuard<Slot>,
    idle: Duration,
    closing: &CancellationToken,
    starting: impl Future<Output = Result<Session, StartFailure>>,
) -> Result<InUse, NotStarted> {
    if let Some(dead) = slot.running.take() {
        let lived = dead.since.elapsed();
        slot.last_failure = format!("it {}", dead.exit_reason().await);
        slot.crashed(lived);
        // Its output has ended, but the process may still run.
        end(&dead).await;
    }
    if let Some(not_before) = slot.not_before {
        let wait = not_before.saturating_duration_since(Instant::now());
        if wait > MAX_DELAY {
            return Err(NotStarted::BackingOff {
                failures: slot.failures,
                wait_s: wait.as_secs() + 1,
                last: slot.last_failure.clone(),
            });
        }
        tokio::select! {
            () = tokio::time::sleep_until(not_before) => {}
            () = closing.cancelled() => {}
        }
    }
    // `biased`, because the first poll of `starting` creates the process: after a shutdown it must
    // not be polled at all.
    let started = tokio::select! {
        biased;
        // Dropping the start closes the child's input, which stops it.
        () = closing.cancelled() => return Err(NotStarted::Closing),
        started = starting => started,
    };
    match started {
        Ok(session) => {
            tracing::debug!(server, "Started an MCP server");
            let now = Instant::now();
            let running = Arc::new(Running {
                session,
                since: now,
                calls: AtomicUsize::new(0),
                last_use: SyncMutex::new(now),
                listed: Mutex::default(),
            });
            let in_use = InUse::new(&running);
            tokio::spawn(stop_when_idle(
                // Weak, so that the timer keeps no server alive after its owner was dropped.
                Arc::downgrade(&running),
                Arc::downgrade(OwnedMutexGuard::mutex(&slot)),
                idle,
            ));
            slot.running = Some(running);
            Ok(in_use)
        }
        Err(failure) => {
            // What may not be installed did not fail, so the next start does not wait.
            if failure.refused.is_none() {
                tracing::debug!(server, reason = failure.reason, "Could not start an MCP server");
                slot.failed();
                slot.last_failure.clone_from(&failure.reason);
            }
            Err(NotStarted::Failed(failure))
        }
    }
}

fn back_off(failures: u32) -> Duration {
    let index = (failures.max(1) as usize - 1).min(BACK_OFF.len() - 1);
    BACK_OFF[index]
}

/// Stops a server that no call has used for the time `idle`.
async fn stop_when_idle(
    running: std::sync::Weak<Running>,
    slot: std::sync::Weak<Mutex<Slot>>,
    idle: Duration,
) {
    let mut wait = idle;
    loop {
        tokio::time::sleep(wait).await;
        let (Some(running), Some(slot)) = (running.upgrade(), slot.upgrade()) else { return };
        let mut slot = slot.lock().await;
        // Calls start under this lock, so none can start here.
        let since = running.idle_since().map(|since| since.elapsed());
        if since.is_some_and(|since| since >= idle) {
            // After a crash, the slot may have the successor of this server.
            if slot.running.as_ref().is_some_and(|current| Arc::ptr_eq(current, &running)) {
                slot.stopped(running.since.elapsed());
            }
            // Still under the lock, so that a call starts the next process only after this one has
            // exited.
            end(&running).await;
            return;
        }
        wait = since.map_or(idle, |since| idle - since).max(Duration::from_millis(10));
    }
}

/// Closes a server's input, which makes its supervisor stop it, and waits for the exit.
pub async fn end(running: &Running) {
    running.session.service.cancellation_token().cancel();
    // More than the 1.5 s that the supervisor gives the server before it kills it.
    let limit = Duration::from_secs(5);
    if exit_within(&mut running.session.ended.clone(), limit).await.is_none()
        && let Some(group) = running.session.group.and_then(rustix::process::Pid::from_raw)
    {
        // The supervisor itself hangs, so only its process group can be killed.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_healthy_life_ends_a_series_of_failures() {
        let short = Duration::from_secs(1);
        for (stop, lived, expected) in [
            (Slot::crashed as fn(&mut Slot, Duration), short, 3),
            (Slot::crashed, HEALTHY, 1),
            (Slot::stopped, short, 2),
            (Slot::stopped, HEALTHY, 0),
        ] {
            let mut slot = Slot { failures: 2, ..Slot::default() };
            stop(&mut slot, lived);
            assert_eq!(slot.failures, expected);
        }
    }
}
