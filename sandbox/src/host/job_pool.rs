//! Runs sealed jobs: bytes in, bytes out, in a child that can be killed and is reused.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::error::SandboxError;
use crate::host::child_socket::ChildSocket;
use crate::host::peer::{await_ready, cpu_reaches};
use crate::host::spawner::{ExitStatus, Kind};
use crate::host::warm::{Lent, WarmStock};
use crate::job::{Job, JobFailure, JobLimits};
use crate::limits::CPU_GRACE;
use crate::outcome::FailureKind;
use crate::stats::{PoolStats, Tally};
use crate::wire::inbox::Inbox;
use crate::wire::start::JOB;

/// CPU time after which a child is replaced, far below [`JOB_LIFETIME_CPU`](crate::limits::JOB_LIFETIME_CPU).
const REUSE_CPU: Duration = Duration::from_secs(300);

/// A pool of children that run one job; each is reused until it is killed.
#[derive(Debug)]
pub struct JobPool {
    limits: JobLimits,
    warm: Arc<WarmStock>,
    tally: Tally,
}

impl JobPool {
    /// Starts `workers` children.
    pub fn new(job: Job, limits: JobLimits, workers: usize) -> Result<JobPool, SandboxError> {
        if workers == 0 {
            return Err(SandboxError::NoWorkers);
        }
        let arguments = vec![
            JOB.to_owned(),
            job.name.to_owned(),
            limits.address_space.to_string(),
            limits.stack.to_string(),
            limits.input_bytes.to_string(),
        ];
        let warm = WarmStock::new(Kind::Exec(arguments), workers, true);
        Ok(JobPool { limits, warm, tally: Tally::default() })
    }

    /// Returns the pool's figures. A job whose future was dropped is not counted.
    pub fn stats(&self) -> PoolStats {
        self.tally.add_to(self.warm.stats())
    }

    /// Runs the job on `input`. Dropping the future kills the child.
    pub async fn run(&self, input: Vec<u8>) -> Result<Vec<u8>, JobFailure> {
        let done = self.run_uncounted(input).await;
        if let Err(failure) = &done
            && let Some(kind) = kind_of(failure)
        {
            self.tally.failed(kind);
        }
        done
    }

    async fn run_uncounted(&self, input: Vec<u8>) -> Result<Vec<u8>, JobFailure> {
        let JobLimits { input_bytes: limit, .. } = self.limits;
        if input.len() > limit {
            return Err(JobFailure::InputTooLarge { bytes: input.len(), limit });
        }
        let unavailable = |e: io::Error| JobFailure::Unavailable(e.to_string());
        let mut lent = self.warm.take().await.map_err(unavailable)?;
        let socket =
            lent.child_mut().socket.take().ok_or_else(|| {
                JobFailure::Unavailable("the child has lost its socket".to_owned())
            })?;
        let socket = ChildSocket::new(socket).map_err(unavailable)?;
        let mut inbox = Inbox::default();
        if !lent.child().ready {
            await_ready(&socket, &mut inbox).await.map_err(JobFailure::Unavailable)?;
            lent.child_mut().ready = true;
        }
        // The child may have run other jobs before.
        let spent_before = lent.child().cpu().unwrap_or_default();
        let exchange = exchange(&socket, &mut inbox, &input, self.limits.output_bytes);
        let cpu = lent.child().cpu_reader();
        let answer = tokio::select! {
            answer = exchange => answer,
            () = cpu_reaches(&cpu, spent_before, self.limits.cpu + CPU_GRACE) => Err(Broken::TimedOut),
            () = tokio::time::sleep(self.limits.wall) => Err(Broken::Starved),
        };
        let spent = lent.child().cpu().map(|after| after.saturating_sub(spent_before));
        self.tally.used(spent.unwrap_or_default());
        match answer {
            Ok(output) => {
                give_back(lent, socket);
                Ok(output)
            }
            // Dropping the loan kills the child: nothing else stops a function that runs.
            Err(Broken::TimedOut) => Err(JobFailure::TimedOut),
            Err(Broken::Starved) => Err(JobFailure::Starved { within: self.limits.wall }),
            Err(Broken::TooLarge) => {
                Err(JobFailure::OutputTooLarge { limit: self.limits.output_bytes })
            }
            Err(Broken::Closed) => {
                drop(socket);
                Err(post_mortem(lent).await)
            }
        }
    }
}

/// Returns how a failure is counted; `None` if no child was ended.
fn kind_of(failure: &JobFailure) -> Option<FailureKind> {
    match failure {
        JobFailure::TimedOut => Some(FailureKind::CpuTime),
        JobFailure::Starved { .. } => Some(FailureKind::WallTime),
        JobFailure::OutOfMemory => Some(FailureKind::OutOfMemory),
        JobFailure::Crashed { .. } => Some(FailureKind::Crashed),
        _ => None,
    }
}

/// Returns a healthy child to the stock, unless it is near the CPU limit of its lifetime.
fn give_back(mut lent: Lent, socket: ChildSocket) {
    if lent.child().cpu().is_some_and(|cpu| cpu <= REUSE_CPU) {
        lent.child_mut().socket = Some(socket.into_socket());
        lent.give_back();
    }
}

async fn post_mortem(lent: Lent) -> JobFailure {
    let child = lent.remove();
    child.wait_to_exit(Duration::from_millis(250)).await;
    match child.kill_and_reap().await {
        // Rust aborts when an allocation fails.
        ExitStatus::Signal(libc::SIGABRT) => JobFailure::OutOfMemory,
        ExitStatus::Signal(libc::SIGXCPU) => JobFailure::TimedOut,
        ExitStatus::Signal(signal) => JobFailure::Crashed { signal: Some(signal) },
        ExitStatus::Code(_) | ExitStatus::Unknown => JobFailure::Crashed { signal: None },
    }
}

/// Why an exchange has no output.
enum Broken {
    TimedOut,
    Starved,
    TooLarge,
    Closed,
}

async fn exchange(
    socket: &ChildSocket,
    inbox: &mut Inbox,
    input: &[u8],
    cap: usize,
) -> Result<Vec<u8>, Broken> {
    let length = u32::try_from(input.len()).map_err(|_| Broken::TooLarge)?;
    socket.send(&length.to_le_bytes()).await.map_err(|_| Broken::Closed)?;
    socket.send(input).await.map_err(|_| Broken::Closed)?;
    loop {
        if let Some(body) = inbox.next(cap).map_err(|_| Broken::TooLarge)? {
            return Ok(body.to_vec());
        }
        socket.receive(inbox).await.map_err(|_| Broken::Closed)?;
    }
}
