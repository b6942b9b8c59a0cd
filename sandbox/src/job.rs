//! Sealed jobs: bytes in, bytes out, in a child that can be killed and is used again.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::UnixStream;

use crate::SandboxError;
use crate::child::{EXIT_PANIC, JOB, exit};
use crate::frame::{self, FromChild, HEADER, Inbox};
use crate::limits::{CPU_GRACE, MIB};
use crate::nursery::Ended;
use crate::warm::{Lent, Warm};
use crate::wire::Wire;

/// CPU time that one child may use over its whole life. It is replaced long before.
pub(crate) const LIFETIME_CPU: Duration = Duration::from_secs(600);
/// A child that has used this much is not used again.
const WORN_OUT: Duration = Duration::from_secs(300);
/// How long a child may take to start and seal itself.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// Longest `ready` frame.
const READY_BYTES: usize = 64 * 1024;

/// A function that a binary offers to run in a sealed child.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The name by which the host asks for it.
    pub name: &'static str,
    /// The work. It sees nothing but its input and leaves nothing but its output.
    pub run: fn(&[u8]) -> Vec<u8>,
}

/// What one job may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobLimits {
    /// Bytes of address space of the child, its stack and the binary's own mapping included.
    pub address_space: u64,
    /// CPU time of one job.
    pub cpu: Duration,
    /// Time of one job from start to end.
    pub wall: Duration,
    /// Bytes of stack.
    pub stack: usize,
    /// Bytes of input.
    pub input_bytes: usize,
    /// Bytes of output.
    pub output_bytes: usize,
}

impl Default for JobLimits {
    fn default() -> JobLimits {
        JobLimits {
            address_space: 512 * MIB as u64,
            cpu: Duration::from_secs(1),
            wall: Duration::from_secs(2),
            stack: 64 * MIB,
            input_bytes: MIB,
            output_bytes: 16 * MIB,
        }
    }
}

/// Why a job has no output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobFailure {
    /// The CPU or the wall time ran out.
    #[error("the job took longer than it may")]
    TimedOut,
    /// The address space ran out.
    #[error("the job needed more memory than it may")]
    OutOfMemory,
    /// The child died.
    #[error("the job's process died ({})", .signal.map_or("it left by itself".to_owned(), |s| format!("signal {s}")))]
    Crashed {
        /// The signal that ended it, if one did. 11 is what a stack that ran out looks like.
        signal: Option<i32>,
    },
    /// The input is larger than the limit.
    #[error("the job's input has {bytes} bytes, at most {limit} are allowed")]
    InputTooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        limit: usize,
    },
    /// The output is larger than the limit.
    #[error("the job's output has more than the {limit} bytes that are allowed")]
    OutputTooLarge {
        /// How large it may be.
        limit: usize,
    },
    /// No sealed child could be had.
    #[error("no sealed child could be started: {0}")]
    Unavailable(String),
}

/// Children that run one job, each again and again until it is killed.
#[derive(Debug)]
pub struct JobPool {
    limits: JobLimits,
    warm: Arc<Warm>,
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
        Ok(JobPool { limits, warm: Warm::new(arguments, workers, true) })
    }

    /// Runs the job on `input`. A future that is dropped kills the child that works for it.
    pub async fn run(&self, input: Vec<u8>) -> Result<Vec<u8>, JobFailure> {
        let JobLimits { input_bytes: limit, .. } = self.limits;
        if input.len() > limit {
            return Err(JobFailure::InputTooLarge { bytes: input.len(), limit });
        }
        let unavailable = |e: io::Error| JobFailure::Unavailable(e.to_string());
        let mut lent = self.warm.take().await.map_err(unavailable)?;
        let socket = lent.child_mut().socket.take().ok_or_else(|| {
            JobFailure::Unavailable("the child has lost its socket".to_owned())
        })?;
        let stream = UnixStream::from_std(socket).map_err(unavailable)?;
        let mut inbox = Inbox::default();
        if !lent.child().ready {
            await_ready(&stream, &mut inbox).await.map_err(JobFailure::Unavailable)?;
            lent.child_mut().ready = true;
        }
        let spent_before = lent.child().cpu().unwrap_or_default();
        let exchange = exchange(&stream, &mut inbox, &input, self.limits.output_bytes);
        let cpu = lent.child().cpu_reader();
        let answer = tokio::select! {
            answer = exchange => answer,
            () = cpu_exhausted(cpu, spent_before, self.limits.cpu) => Err(Broken::TimedOut),
            () = tokio::time::sleep(self.limits.wall) => Err(Broken::TimedOut),
        };
        match answer {
            Ok(output) => {
                keep(lent, stream);
                Ok(output)
            }
            Err(Broken::TimedOut) => Err(JobFailure::TimedOut),
            Err(Broken::TooLarge) => {
                Err(JobFailure::OutputTooLarge { limit: self.limits.output_bytes })
            }
            Err(Broken::Closed) => {
                drop(stream);
                Err(post_mortem(lent).await)
            }
        }
    }
}

/// Puts a healthy child back. One that has worked long enough is replaced.
fn keep(mut lent: Lent, stream: UnixStream) {
    let worn_out = lent.child().cpu().is_none_or(|cpu| cpu > WORN_OUT);
    if let (false, Ok(socket)) = (worn_out, stream.into_std()) {
        lent.child_mut().socket = Some(socket);
        lent.give_back();
    }
}

async fn post_mortem(lent: Lent) -> JobFailure {
    let child = lent.keep();
    child.settle(Duration::from_millis(250)).await;
    match child.end().await {
        Ended::Signal(libc::SIGABRT) => JobFailure::OutOfMemory,
        Ended::Signal(libc::SIGXCPU) => JobFailure::TimedOut,
        Ended::Signal(signal) => JobFailure::Crashed { signal: Some(signal) },
        Ended::Exit(_) | Ended::Unknown => JobFailure::Crashed { signal: None },
    }
}

enum Broken {
    TimedOut,
    TooLarge,
    Closed,
}

async fn exchange(
    stream: &UnixStream,
    inbox: &mut Inbox,
    input: &[u8],
    cap: usize,
) -> Result<Vec<u8>, Broken> {
    let length = u32::try_from(input.len()).map_err(|_| Broken::TooLarge)?;
    send(stream, &length.to_le_bytes()).await?;
    send(stream, input).await?;
    loop {
        if let Some(body) = inbox.next(cap).map_err(|_| Broken::TooLarge)? {
            return Ok(body.to_vec());
        }
        receive(stream, inbox).await.map_err(|_| Broken::Closed)?;
    }
}

async fn send(stream: &UnixStream, mut bytes: &[u8]) -> Result<(), Broken> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.writable().await.map_err(|_| Broken::Closed)?;
            }
            Err(_) => return Err(Broken::Closed),
        }
    }
    Ok(())
}

/// Waits for more bytes; an error means that the child closed its end.
pub(crate) async fn receive(stream: &UnixStream, inbox: &mut Inbox) -> io::Result<()> {
    loop {
        stream.readable().await?;
        match try_receive(stream, inbox) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
}

/// Takes the bytes that are there; an error other than `WouldBlock` means that the child closed its end.
pub(crate) fn try_receive(stream: &UnixStream, inbox: &mut Inbox) -> io::Result<()> {
    let tail = inbox.tail();
    tail.reserve(64 * 1024);
    match stream.try_read_buf(tail) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads a child's first frame: its seal holds, or it says why not.
pub(crate) async fn await_ready(
    stream: &UnixStream,
    inbox: &mut Inbox,
) -> Result<Vec<crate::LayerReport>, String> {
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        if let Some(body) = inbox.next(READY_BYTES)? {
            return match frame::read_from_child(body)? {
                FromChild::Ready { layers } => Ok(layers),
                FromChild::Unavailable { message } => Err(message),
                _ => Err("the child spoke before its seal was told".to_owned()),
            };
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, receive(stream, inbox)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err("the child died before it was sealed".to_owned()),
            Err(_) => return Err("the child did not seal itself in time".to_owned()),
        }
    }
}

/// Returns once `limit` and a little grace has been used. Sleeps as long as it cannot have been.
pub(crate) async fn cpu_exhausted(
    cpu: impl Fn() -> Option<Duration>,
    before: Duration,
    limit: Duration,
) {
    loop {
        // A child that cannot be measured has died, which the socket tells.
        let Some(now) = cpu() else { return std::future::pending().await };
        let left = (limit + CPU_GRACE).saturating_sub(now.saturating_sub(before));
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

/// The child's side: one input after the other, for ever.
pub(crate) fn serve(mut wire: Wire, job: Job, input_bytes: usize) -> ! {
    wire.flush();
    loop {
        let output = loop {
            match wire.inbox().next(input_bytes) {
                Ok(Some(body)) => break (job.run)(body),
                Ok(None) => {
                    wire.fill(None);
                }
                Err(_) => exit(EXIT_PANIC),
            }
        };
        let Ok(length) = u32::try_from(output.len()) else { exit(EXIT_PANIC) };
        let out = wire.out();
        out.reserve_exact(HEADER + output.len());
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&output);
        drop(output);
        wire.flush();
    }
}
