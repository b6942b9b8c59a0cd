//! Starts an MCP server and connects to it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use protocol::{ErrorBody, json};
use rmcp::RoleClient;
use rmcp::model::{ClientConfig, Implementation};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RunningService};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;

use super::fetch;
use super::relay::Refusals;
use super::seal::{self, Executed, Kept};
use super::{Seal, Starter};
use crate::mcp_version;
use crate::processes::supervise::{Input, TOO_FULL, TOO_LARGE, TOO_MANY};

/// The maximum length of a line from a server in bytes: a tool result of 8 MiB is in it twice, as text and as
/// structured content, with escapes.
pub const LINE_LIMIT: usize = 24 * 1024 * 1024;

/// The maximum number of lines on stdout that are not MCP messages.
const NOISE_LIMIT: usize = 1_000;

/// The number of stderr lines that are kept for error messages.
const STDERR_LINES: usize = 12;

/// The maximum length of a stderr line in bytes; the rest counts as another line.
const STDERR_LINE_LIMIT: u64 = 1_024;

/// The maximum length of a notification that is looked for, in bytes.
const NOTICE_LIMIT: usize = 64 * 1024;

/// What is known about why a server failed: the protocol violation that `pml` found, and the last stderr lines.
#[derive(Debug, Clone, Default)]
pub struct Diagnosis(Arc<Mutex<DiagnosisState>>);

#[derive(Debug, Default)]
struct DiagnosisState {
    lines: VecDeque<String>,
    fault: Option<String>,
}

impl Diagnosis {
    fn with<T>(&self, act: impl FnOnce(&mut DiagnosisState) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push_stderr(&self, line: String) {
        self.with(|diagnosis| {
            if diagnosis.lines.len() == STDERR_LINES {
                diagnosis.lines.pop_front();
            }
            diagnosis.lines.push_back(line);
        });
    }

    fn set_fault(&self, fault: String) {
        // The first violation is the cause; later ones may be its consequences.
        self.with(|diagnosis| diagnosis.fault.get_or_insert(fault).len());
    }

    /// Returns the protocol violation that `pml` found, if any.
    pub fn fault(&self) -> Option<String> {
        self.with(|diagnosis| diagnosis.fault.clone())
    }

    /// Returns the last lines of its stderr, joined.
    pub fn stderr(&self) -> String {
        self.with(|diagnosis| diagnosis.lines.iter().cloned().collect::<Vec<_>>().join("\n"))
    }
}

/// How often a server has said that its tools changed.
#[derive(Debug, Clone, Default)]
pub struct Notices(Arc<AtomicU64>);

impl Notices {
    /// Returns the number.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Counts a message, if it may be such a notice.
    fn read(&self, line: &[u8]) {
        // Not from the library's handler: that runs beside the answers to calls, and the next call could be checked
        // before it. By this part alone, because some servers write `tools\/list_changed`. A message that only
        // mentions it costs one more list.
        const NAME: &[u8] = b"list_changed";
        if line.len() <= NOTICE_LIMIT && line.windows(NAME.len()).any(|window| window == NAME) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A running server that has completed the handshake.
pub struct Session {
    /// The connection.
    pub service: RunningService<RoleClient, ClientConfig>,
    /// How it ended, once it has.
    pub ended: watch::Receiver<Option<String>>,
    /// What is known about why it failed.
    pub diagnosis: Diagnosis,
    /// Its process group; `None` for one that is not a process of this machine.
    pub group: Option<i32>,
    /// The connections that it was refused.
    pub refusals: Refusals,
    /// The notices that its tools changed.
    pub notices: Notices,
    /// What its owner keeps while it runs.
    pub held: Option<Box<dyn std::any::Any + Send + Sync>>,
    /// What a sealed server needs while it runs.
    pub kept: Option<Kept>,
}

/// Why a server did not start.
#[derive(Debug)]
pub struct StartFailure {
    /// What happened.
    pub reason: String,
    /// Its last lines on stderr.
    pub stderr: String,
    /// That its packages may not be installed.
    pub refused: Option<Box<ErrorBody>>,
}

/// Starts a server and completes the MCP handshake.
///
/// A server that exits on the first request of the current protocol version is started once more, with the older
/// handshake.
///
/// # Errors
/// Returns why it did not start.
pub async fn start(
    starter: &Starter,
    executed: &Executed,
    seal: Option<&Seal>,
) -> Result<Session, StartFailure> {
    let auto = mcp_version::lifecycle();
    // One deadline for both attempts, so that the second one does not double the limit.
    let deadline = tokio::time::Instant::now() + starter.limit;
    match attempt(starter, executed, seal, auto, deadline).await {
        // Only if its stderr names the method of that request. A server that exits for another
        // reason would exit again.
        Err(Attempt::Died(failure)) if failure.stderr.contains("server/discover") => {
            let older = ClientLifecycleMode::Initialize;
            let again = attempt(starter, executed, seal, older, deadline).await;
            again.map_err(Attempt::into_failure)
        }
        other => other.map_err(Attempt::into_failure),
    }
}

enum Attempt {
    Died(StartFailure),
    Failed(StartFailure),
}

impl Attempt {
    fn into_failure(self) -> StartFailure {
        match self {
            Self::Died(failure) | Self::Failed(failure) => failure,
        }
    }
}

async fn attempt(
    starter: &Starter,
    executed: &Executed,
    seal: Option<&Seal>,
    lifecycle: ClientLifecycleMode,
    deadline: tokio::time::Instant,
) -> Result<Session, Attempt> {
    let (diagnosis, refusals) = (Diagnosis::default(), Refusals::default());
    let notices = Notices::default();
    let failure = |reason: String, diagnosis: &Diagnosis| {
        let mut reason = diagnosis.fault().unwrap_or(reason);
        let refused = refusals.since(0);
        if !refused.is_empty() {
            reason = format!("{reason}; it was refused a connection: {refused}");
        }
        StartFailure { reason, stderr: diagnosis.stderr(), refused: None }
    };
    let file = &executed.program.file;
    let sealed = match seal {
        Some(seal) => seal::prepare(starter, seal, executed, &refusals).await.map(Some),
        None => Ok(None),
    };
    let sealed = sealed.map_err(|reason| Attempt::Failed(failure(reason, &diagnosis)))?;
    let mut argv = vec![file.clone().into_os_string()];
    argv.extend(executed.arguments.iter().map(Into::into));
    let confinement = sealed.as_ref().map(|sealed| &sealed.confinement);
    let mut command = starter.supervisor.command(Input::Passed, confinement, file, &argv);
    let variables = sealed.as_ref().map_or(&executed.variables, |sealed| &sealed.variables);
    command.envs(variables).current_dir(&executed.folder);
    fetch::shorten_retries(file, &executed.variables, &mut command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = tokio::process::Command::from(command).spawn().map_err(|error| {
        Attempt::Failed(failure(format!("its supervisor cannot be started: {error}"), &diagnosis))
    })?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(Attempt::Failed(failure("it has no pipes".to_owned(), &diagnosis)));
    };
    let group = child.id().and_then(|pid| i32::try_from(pid).ok());
    let ended = observe(child, stderr, diagnosis.clone());
    let output = CheckedOutput::new(stdout, diagnosis.clone(), notices.clone());
    let hello = client_config().serve_with_lifecycle(transport(output, stdin), lifecycle);
    match tokio::time::timeout_at(deadline, hello).await {
        Ok(Ok(service)) => {
            let kept = sealed.map(|sealed| sealed.kept);
            Ok(Session { service, ended, diagnosis, group, refusals, notices, held: None, kept })
        }
        Ok(Err(error)) => {
            // The pipe of a server that exits closes before its exit is known. The exit explains
            // more than the error of the protocol, so it is awaited.
            let exit = exit_within(&mut ended.clone(), Duration::from_secs(2)).await;
            Err(match exit {
                Some(exit) => {
                    let fetch_error = fetch::reason(file, &diagnosis.stderr());
                    let reason =
                        fetch_error.unwrap_or_else(|| format!("it {exit} before it answered"));
                    Attempt::Died(failure(reason, &diagnosis))
                }
                None => {
                    Attempt::Failed(failure(format!("its output is not MCP: {error}"), &diagnosis))
                }
            })
        }
        Err(_) => {
            let fetches = fetch::fetches(file);
            let reason = match fetches {
                true => "it did not answer in time, or is still being downloaded; retry",
                false => "it did not answer in time",
            };
            Err(Attempt::Failed(failure(reason.to_owned(), &diagnosis)))
        }
    }
}

/// Returns what servers are told of this client.
pub fn client_config() -> ClientConfig {
    let mut info = ClientConfig::default();
    info.client_info = Implementation::new("pml", env!("CARGO_PKG_VERSION"));
    info
}

/// Waits for the server's exit, for at most `limit`.
pub(super) async fn exit_within(
    ended: &mut watch::Receiver<Option<String>>,
    limit: Duration,
) -> Option<String> {
    let exit = tokio::time::timeout(limit, ended.wait_for(Option::is_some)).await;
    exit.ok().and_then(Result::ok).and_then(|exit| exit.clone())
}

/// Reads the child's stderr and waits for its exit, in the background.
fn observe(
    mut child: Child,
    stderr: ChildStderr,
    diagnosis: Diagnosis,
) -> watch::Receiver<Option<String>> {
    let (sender, ended) = watch::channel(None);
    tokio::spawn(async move {
        // Both before the exit is reported, because error messages quote the last lines of stderr.
        let (status, ()) = tokio::join!(child.wait(), drain(stderr, diagnosis));
        let exit = match status.ok().and_then(|status| status.code()) {
            Some(0) => "ended".to_owned(),
            Some(TOO_MANY) => "was ended because it had too many processes".to_owned(),
            Some(TOO_LARGE) => "was ended because its processes had too much memory".to_owned(),
            Some(TOO_FULL) => {
                "was ended because it had stored too much, or something that cannot be looked at"
                    .to_owned()
            }
            // The supervisor adds 128 to the number of a signal. Linux has 64 signals.
            Some(code @ 129..=192) => format!("was ended by signal {}", code - 128),
            Some(code) => format!("ended with exit code {code}"),
            None => "was ended by a signal".to_owned(),
        };
        sender.send_replace(Some(exit));
    });
    ended
}

async fn drain(stderr: ChildStderr, diagnosis: Diagnosis) {
    let mut reader = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match (&mut reader).take(STDERR_LINE_LIMIT).read_until(b'\n', &mut line).await {
            Ok(1..) => {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if !text.is_empty() {
                    diagnosis.push_stderr(text);
                }
            }
            Ok(0) | Err(_) => return,
        }
    }
}

fn transport(
    output: CheckedOutput,
    stdin: ChildStdin,
) -> AsyncRwTransport<RoleClient, CheckedOutput, ChildStdin> {
    // `CheckedOutput` ends the stream before this limit would silently drop a line.
    AsyncRwTransport::new(output, stdin).with_max_line_length(LINE_LIMIT * 2)
}

/// A server's output, which ends at the first protocol violation.
struct CheckedOutput {
    inner: ChildStdout,
    diagnosis: Diagnosis,
    notices: Notices,
    line: usize,
    /// The current line.
    message: Vec<u8>,
    noise: usize,
}

impl CheckedOutput {
    fn new(inner: ChildStdout, diagnosis: Diagnosis, notices: Notices) -> Self {
        Self { inner, diagnosis, notices, line: 0, message: Vec::new(), noise: 0 }
    }

    /// Checks the next bytes; returns a protocol violation.
    fn check(&mut self, bytes: &[u8]) -> Option<String> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_start = self.line == 0;
            // Empty lines are harmless, and `0xef` begins a byte order mark, which the library
            // skips.
            if is_start && !matches!(part[0], b'{' | b'[' | b'\n' | b'\r' | b' ' | 0xef) {
                self.noise += 1;
            }
            self.line += part.len();
            if self.line > LINE_LIMIT {
                return Some(format!("it sent a message longer than {LINE_LIMIT} bytes"));
            }
            self.message.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.line = 0;
                let message = std::mem::take(&mut self.message);
                self.notices.read(&message);
                if let Some(problem) = unreadable(&message) {
                    return Some(problem);
                }
            }
        }
        (self.noise > NOISE_LIMIT)
            .then(|| format!("it printed more than {NOISE_LIMIT} lines that are not MCP messages"))
    }
}

/// Returns why a line cannot be passed to the message parser.
fn unreadable(line: &[u8]) -> Option<String> {
    // Checked first: the parser builds a tree of any JSON, whether it is a message or not.
    if json::values(line) > json::MESSAGE_VALUES {
        let most = json::MESSAGE_VALUES;
        return Some(format!("it sent a message with more than {most} values and names"));
    }
    let problem = json::check(line).err()?;
    // The library would silently skip an invalid message, and the call that it answers would run into its timeout.
    // Other lines in braces are log output, which is skipped.
    let is_message = line.trim_ascii_start().starts_with(b"{")
        && line.windows(9).any(|window| window == b"\"jsonrpc\"");
    is_message.then(|| format!("it sent an invalid message: {problem}"))
}

impl AsyncRead for CheckedOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = polled
            && let Some(fault) = self.check(&buffer.filled()[before..])
        {
            self.diagnosis.set_fault(fault);
            // A read without bytes is the end of the stream. The library then fails all pending
            // calls, and `exit_reason` reports the fault.
            buffer.set_filled(before);
        }
        polled
    }
}
