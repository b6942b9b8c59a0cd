//! Starting one MCP server and speaking with it.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use execution::mcp_version;
use protocol::json;
use rmcp::RoleClient;
use rmcp::model::{ClientConfig, Implementation};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RunningService};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;

use super::fetch;
use crate::processes::supervise::{Input, Supervisor};

/// The longest line that a server may send, in bytes: a tool result of 8 MiB occurs in it twice, as text and as
/// structured content, with escapes.
pub(super) const LINE_LIMIT: usize = 24 * 1024 * 1024;

/// The maximum number of lines on stdout that are not messages.
const NOISE_LIMIT: usize = 1_000;

/// The number of its last stderr lines that are kept for error messages.
const STDERR_LINES: usize = 12;

/// The longest line on standard error that is kept, in bytes.
const STDERR_LINE: u64 = 1_024;

/// A server as it is started.
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) folder: PathBuf,
}

/// The known facts about a server's end, and its last stderr lines.
#[derive(Debug, Clone, Default)]
pub(super) struct LastWords(Arc<Mutex<Words>>);

#[derive(Debug, Default)]
struct Words {
    lines: VecDeque<String>,
    fault: Option<String>,
}

impl LastWords {
    fn with<T>(&self, act: impl FnOnce(&mut Words) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn hear(&self, line: String) {
        self.with(|words| {
            if words.lines.len() == STDERR_LINES {
                words.lines.pop_front();
            }
            words.lines.push_back(line);
        });
    }

    fn blame(&self, fault: String) {
        self.with(|words| words.fault.get_or_insert(fault).len());
    }

    /// Returns the fault that `pml` found, if any.
    pub(super) fn fault(&self) -> Option<String> {
        self.with(|words| words.fault.clone())
    }

    /// Returns the last lines of its standard error, joined.
    pub(super) fn stderr(&self) -> String {
        self.with(|words| words.lines.iter().cloned().collect::<Vec<_>>().join("\n"))
    }
}

/// A running server that has completed the handshake.
pub(super) struct Session {
    pub(super) service: RunningService<RoleClient, ClientConfig>,
    pub(super) ended: watch::Receiver<Option<String>>,
    pub(super) words: LastWords,
    pub(super) group: Option<i32>,
}

/// Why a server did not start.
pub(super) struct StartFailure {
    pub(super) reason: String,
    pub(super) stderr: String,
}

/// Starts a server and shakes hands with it.
///
/// A server that exits on the first request of the current protocol is started once more and called with the older
/// handshake.
pub(super) async fn start(
    supervisor: &Supervisor,
    launch: &Launch,
    limit: Duration,
) -> Result<Session, StartFailure> {
    let auto = mcp_version::lifecycle();
    let deadline = tokio::time::Instant::now() + limit;
    match attempt(supervisor, launch, auto, deadline).await {
        Err(Attempt::Died(failure)) if failure.stderr.contains("server/discover") => {
            let older = ClientLifecycleMode::Initialize;
            attempt(supervisor, launch, older, deadline).await.map_err(Attempt::into_failure)
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
    supervisor: &Supervisor,
    launch: &Launch,
    lifecycle: ClientLifecycleMode,
    deadline: tokio::time::Instant,
) -> Result<Session, Attempt> {
    let words = LastWords::default();
    let failure = |reason: String, words: &LastWords| StartFailure {
        reason: words.fault().unwrap_or(reason),
        stderr: words.stderr(),
    };
    let mut argv = vec![launch.program.clone().into_os_string()];
    argv.extend(launch.arguments.iter().map(Into::into));
    let mut command = supervisor.command(Input::Passed, &argv);
    command.envs(&launch.variables).current_dir(&launch.folder);
    fetch::be_quick(&launch.program, &launch.variables, &mut command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = tokio::process::Command::from(command).spawn().map_err(|error| {
        Attempt::Failed(failure(format!("its supervisor cannot be started: {error}"), &words))
    })?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(Attempt::Failed(failure("it has no pipes".to_owned(), &words)));
    };
    let group = child.id().and_then(|pid| i32::try_from(pid).ok());
    let ended = observe(child, stderr, words.clone());
    let hello = greeting().serve_with_lifecycle(transport(stdout, stdin, words.clone()), lifecycle);
    match tokio::time::timeout_at(deadline, hello).await {
        Ok(Ok(service)) => Ok(Session { service, ended, words, group }),
        Ok(Err(error)) => {
            let exit = exit_within(&mut ended.clone(), Duration::from_secs(2)).await;
            Err(match exit {
                Some(exit) => {
                    let told = fetch::reason(&launch.program, &words.stderr());
                    let reason = told.unwrap_or_else(|| format!("it {exit} before it answered"));
                    Attempt::Died(failure(reason, &words))
                }
                None => Attempt::Failed(failure(format!("its output is not MCP: {error}"), &words)),
            })
        }
        Err(_) => {
            let fetches = fetch::fetches(&launch.program);
            let reason = match fetches {
                true => "it did not answer in time, or is still being downloaded; retry",
                false => "it did not answer in time",
            };
            Err(Attempt::Failed(failure(reason.to_owned(), &words)))
        }
    }
}

pub(super) fn greeting() -> ClientConfig {
    let mut info = ClientConfig::default();
    info.client_info = Implementation::new("pml", env!("CARGO_PKG_VERSION"));
    info
}

/// Waits for the server's end, for at most `limit`.
pub(super) async fn exit_within(
    ended: &mut watch::Receiver<Option<String>>,
    limit: Duration,
) -> Option<String> {
    let exit = tokio::time::timeout(limit, ended.wait_for(Option::is_some)).await;
    exit.ok().and_then(Result::ok).and_then(|exit| exit.clone())
}

/// Collects the child's exit and its standard error in the background.
fn observe(
    mut child: Child,
    stderr: ChildStderr,
    words: LastWords,
) -> watch::Receiver<Option<String>> {
    let (tell, ended) = watch::channel(None);
    tokio::spawn(async move {
        let (status, ()) = tokio::join!(child.wait(), drain(stderr, words));
        let exit = match status.ok().and_then(|status| status.code()) {
            Some(0) => "ended".to_owned(),
            Some(code @ 129..=192) => format!("was ended by signal {}", code - 128),
            Some(code) => format!("ended with exit code {code}"),
            None => "was ended by a signal".to_owned(),
        };
        tell.send_replace(Some(exit));
    });
    ended
}

async fn drain(stderr: ChildStderr, words: LastWords) {
    let mut reader = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match (&mut reader).take(STDERR_LINE).read_until(b'\n', &mut line).await {
            Ok(1..) => {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if !text.is_empty() {
                    words.hear(text);
                }
            }
            Ok(0) | Err(_) => return,
        }
    }
}

fn transport(
    stdout: ChildStdout,
    stdin: ChildStdin,
    words: LastWords,
) -> AsyncRwTransport<RoleClient, Guarded, ChildStdin> {
    let guarded = Guarded { inner: stdout, words, line: 0, message: Vec::new(), noise: 0 };
    // The guard ends the stream before this limit would drop a line in silence.
    AsyncRwTransport::new(guarded, stdin).with_max_line_length(LINE_LIMIT * 2)
}

/// A server's output that ends when the server misbehaves.
struct Guarded {
    inner: ChildStdout,
    words: LastWords,
    line: usize,
    /// The line so far.
    message: Vec<u8>,
    noise: usize,
}

impl Guarded {
    /// Returns the problem of the bytes that follow those seen so far.
    fn check(&mut self, bytes: &[u8]) -> Option<String> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_start = self.line == 0;
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
                if let Some(problem) = unreadable(&std::mem::take(&mut self.message)) {
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
    // The parser makes a tree of whatever is JSON, message or not.
    if json::values(line) > json::MESSAGE_VALUES {
        let most = json::MESSAGE_VALUES;
        return Some(format!("it sent a message with more than {most} values and names"));
    }
    let problem = json::check(line).err()?;
    // It would be skipped in silence, and the call that it may answer would wait until its time is up. Other lines in
    // braces are what a server should have printed elsewhere.
    let is_message = line.trim_ascii_start().starts_with(b"{")
        && line.windows(9).any(|window| window == b"\"jsonrpc\"");
    is_message.then(|| format!("it sent an invalid message: {problem}"))
}

impl AsyncRead for Guarded {
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
            self.words.blame(fault);
            buffer.set_filled(before);
        }
        polled
    }
}
