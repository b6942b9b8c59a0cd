//! A pool of sealed children, each of which runs one program.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::error::SandboxError;
use crate::host::child_socket::ChildSocket;
use crate::host::peer::await_ready;
use crate::host::run::{Ending, Run};
use crate::host::spawner::{ChildProcess, ExitStatus, Kind, Zygotes};
use crate::host::warm::{Lent, WarmStock};
use crate::layer::LayerReport;
use crate::limits::{Limits, PoolConfig};
use crate::outcome::{Failure, FailureKind, Outcome, Program};
use crate::stats::{PoolStats, Tally};
use crate::tool::ToolCaller;
use crate::wire::frame::{self, ToChild};
use crate::wire::inbox::Inbox;

/// The number of retries when a child dies before it has seen the program.
const START_ATTEMPTS: usize = 3;
/// The time limit of one probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a child that closed its socket may take to exit by itself, so that its own exit status is seen.
const EXIT_TIMEOUT: Duration = Duration::from_millis(250);

/// Runs programs, each in a separate sealed child.
///
/// Dropping a future of [`Pool::run`] kills its child at once; dropping the pool kills the waiting ones.
#[derive(Debug)]
pub struct Pool {
    warm: Arc<WarmStock>,
    running: Arc<Semaphore>,
    make_way: bool,
    layers: Mutex<Vec<LayerReport>>,
    tally: Tally,
    /// Callers that wait for their turn.
    queued: AtomicUsize,
}

impl Pool {
    /// Returns a pool whose children start in the background.
    pub fn new(config: PoolConfig) -> Result<Pool, SandboxError> {
        if config.max_running == 0 {
            return Err(SandboxError::NoWorkers);
        }
        Ok(Pool {
            warm: WarmStock::new(Kind::Fork(Zygotes::new(config.forks)), config.warm, false),
            running: Arc::new(Semaphore::new(config.max_running)),
            make_way: config.make_way,
            layers: Mutex::default(),
            tally: Tally::default(),
            queued: AtomicUsize::new(0),
        })
    }

    /// Runs one program to its end.
    ///
    /// Calls that are in flight when the program ends are cancelled, and waiting calls never start.
    pub async fn run(
        &self,
        program: Program,
        limits: &Limits,
        tools: Arc<dyn ToolCaller>,
        cancel: CancellationToken,
    ) -> Outcome {
        let cancelled = || {
            Outcome::never_started(Failure::new(FailureKind::Cancelled, "the run was cancelled"))
        };
        let start = async {
            // The turn comes first, so that a program that queues holds no ready child.
            let turn = {
                let _queued = Queued::begin(&self.queued);
                Arc::clone(&self.running).acquire_owned().await
            };
            (turn.expect("the semaphore is never closed"), self.start().await)
        };
        let (turn, started) = tokio::select! {
            // In this order, a run that was cancelled in the queue never starts.
            biased;
            () = cancel.cancelled() => return cancelled(),
            started = start => started,
        };
        match started {
            Ok(ready) => {
                let make_way = self.make_way;
                let outcome =
                    ready.run(turn, make_way, &program, &limits.granted(), tools, &cancel).await;
                if let Err(failure) = &outcome.result {
                    self.tally.failed(failure.kind);
                }
                self.tally.used(outcome.cpu.unwrap_or_default());
                outcome
            }
            Err(why) => {
                let message = format!("no sealed child could be started: {why}");
                Outcome::never_started(Failure::new(FailureKind::Unavailable, message))
            }
        }
    }

    /// Returns the pool's figures. A run whose future was dropped is not counted.
    pub fn stats(&self) -> PoolStats {
        let stats = self.warm.stats();
        let waiting = stats.waiting + self.queued.load(Ordering::Relaxed);
        self.tally.add_to(PoolStats { waiting, ..stats })
    }

    /// Returns the layers that hold on this machine, as reported by a child.
    ///
    /// Starts a child for this if none has reported its layers yet.
    pub async fn layers(&self) -> Result<Vec<LayerReport>, SandboxError> {
        let known = self.known_layers();
        if !known.is_empty() {
            return Ok(known);
        }
        self.start().await.map_err(SandboxError::Unavailable)?;
        Ok(self.known_layers())
    }

    /// Makes a sealed child run the probe with this number, and returns its exit status.
    pub(crate) async fn probe(&self, number: usize) -> Result<ExitStatus, SandboxError> {
        let Ready { lent, socket, .. } = self.start().await.map_err(SandboxError::Unavailable)?;
        let mut question = Vec::new();
        frame::write(&mut question, &ToChild::Probe { id: number as u64 });
        // A short message fits into an empty socket at once, so there is no need to wait.
        if socket.try_send(&question).ok() != Some(question.len()) {
            return Err(SandboxError::Unavailable("a sealed child accepts no message".to_owned()));
        }
        let child = lent.remove();
        child.wait_to_exit(PROBE_TIMEOUT).await;
        Ok(child.kill_and_reap().await)
    }

    fn known_layers(&self) -> Vec<LayerReport> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a sealed child. If one cannot seal itself, the next is tried.
    async fn start(&self) -> Result<Ready, String> {
        let mut why = String::new();
        for _ in 0..START_ATTEMPTS {
            let mut lent = self.warm.take().await.map_err(|e| e.to_string())?;
            let socket = lent.child_mut().socket.take().ok_or("the child has lost its socket")?;
            let socket = ChildSocket::new(socket).map_err(|e| e.to_string())?;
            let mut inbox = Inbox::default();
            match await_ready(&socket, &mut inbox).await {
                Ok(layers) => {
                    let mut known = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
                    *known = layers;
                    return Ok(Ready { lent, socket, inbox });
                }
                Err(message) => why = message,
            }
        }
        Err(why)
    }
}

/// Counts a caller as waiting for its turn until it is dropped.
struct Queued<'a>(&'a AtomicUsize);

impl<'a> Queued<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A sealed child that has seen no program.
struct Ready {
    lent: Lent,
    socket: ChildSocket,
    inbox: Inbox,
}

impl Ready {
    async fn run(
        self,
        turn: OwnedSemaphorePermit,
        make_way: bool,
        program: &Program,
        limits: &Limits,
        tools: Arc<dyn ToolCaller>,
        cancel: &CancellationToken,
    ) -> Outcome {
        let Ready { lent, socket, mut inbox } = self;
        let started = Instant::now();
        let child = lent.child();
        // The child has already used CPU time for its own start.
        let before = child.cpu().unwrap_or_default();
        let mut run = Run::new(&socket, limits, tools, cancel);
        let deprioritizer = child.deprioritizer();
        let on_long_run = || {
            if make_way {
                deprioritizer();
            }
        };
        let ending = run.drive(program, &mut inbox, child.cpu_reader(), on_long_run, cancel).await;
        let cpu = child.cpu().map(|after| after.saturating_sub(before));
        let (calls, console_truncated) = (run.calls, run.console_truncated);
        let returned_nothing = run.returned_nothing;
        let console = std::mem::take(&mut run.console);
        let unanswered = std::mem::take(&mut run.unanswered).into_values().collect();
        // Cancels the calls that are still in flight.
        drop(run);
        let crashed = |why| Err(Failure::new(FailureKind::Crashed, why));
        let (result, lent) = match ending {
            Ending::Complete(result) => (result, Some(lent)),
            Ending::Stopped(failure) => (Err(failure), Some(lent)),
            Ending::Broken(why) => {
                (crashed(format!("the program's process broke the protocol: {why}")), Some(lent))
            }
            Ending::Closed => (Err(post_mortem(lent.remove()).await), None),
        };
        // In a separate task, so that the outcome is returned first: a child that exits may occupy the processor on
        // which the caller would continue.
        tokio::spawn(async move { drop((lent, socket, turn)) });
        let duration = started.elapsed();
        Outcome {
            result,
            returned_nothing,
            console,
            console_truncated,
            calls,
            unanswered,
            duration,
            cpu,
        }
    }
}

/// Determines why a child closed its socket without a result.
async fn post_mortem(child: ChildProcess) -> Failure {
    child.wait_to_exit(EXIT_TIMEOUT).await;
    let (kind, message) = match child.kill_and_reap().await {
        ExitStatus::Signal(libc::SIGXCPU) => {
            (FailureKind::CpuTime, "the program used all of its CPU time".to_owned())
        }
        ExitStatus::Signal(libc::SIGSYS) => (
            FailureKind::Crashed,
            "the program's process made a forbidden system call and was killed".to_owned(),
        ),
        ExitStatus::Signal(signal) => {
            (FailureKind::Crashed, format!("the program's process was killed by signal {signal}"))
        }
        ExitStatus::Code(code) => (
            FailureKind::Crashed,
            format!("the program's process exited without a result (code {code})"),
        ),
        ExitStatus::Unknown => {
            (FailureKind::Crashed, "the program's process exited without a result".to_owned())
        }
    };
    Failure::new(kind, message)
}
