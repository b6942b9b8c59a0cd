//! Runs one program under supervision: confined, within a time limit, and with the beginning of its output.

mod git;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use execution::processes::confinement::{Machine, confinement};
use execution::processes::programs::Program;
use execution::processes::supervise::{Input, Supervisor};
use protocol::ErrorCode;
use sandbox::{Confinement, Network};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::NativeError;
use crate::policy::{self, CommandAccess, Judged, Policy};
use crate::processes::environment::Environment;
use crate::workspace::Workspace;
use crate::workspace::touched::Granted;

/// The maximum number of bytes kept of each output stream.
pub(super) const OUTPUT_LIMIT: usize = 1024 * 1024;

/// The default time limit of a program.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether this machine can confine commands.
static CAN_CONFINE: LazyLock<Result<(), String>> = LazyLock::new(Confinement::check_support);

/// What commands depend on.
#[derive(Clone, Copy)]
pub(super) struct Commands<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) environment: &'a Environment,
    pub(super) supervisor: &'a Supervisor,
}

/// A program to run.
pub(super) struct Job {
    /// The name by which it was called, and its arguments.
    pub(super) argv: Vec<String>,
    /// The program; the file that runs.
    pub(super) program: Program,
    /// The file as it was found, possibly by a link. Some files are several programs, and choose by this name.
    pub(super) found: PathBuf,
    pub(super) folder: PathBuf,
    /// Variables that it gets beside those that every command gets.
    pub(super) variables: BTreeMap<String, String>,
    pub(super) reach: CommandReach,
    pub(super) stdin: Vec<u8>,
    pub(super) limit: Duration,
    /// How many bytes of each output stream are kept.
    pub(super) kept: usize,
}

/// What a command can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandReach {
    /// It can read the workspace.
    Reading,
    /// It can change it, and has this access.
    Changing(CommandAccess),
}

/// The result of a program.
pub(super) struct Ended {
    /// 128 plus the number of the signal, if one ended it; `None` if it is not known.
    pub(super) exit_code: Option<i32>,
    pub(super) stdout: Stream,
    pub(super) stderr: Stream,
    pub(super) took: Duration,
}

/// What a program wrote.
pub(super) struct Stream {
    pub(super) bytes: Vec<u8>,
    /// Whether there was more.
    pub(super) is_cut: bool,
}

impl Stream {
    /// Returns the text, with replacement characters for what is not UTF-8.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Checks that this machine can confine a command.
pub(super) fn check_support(name: &str) -> Result<(), NativeError> {
    CAN_CONFINE.clone().map_err(|reason| {
        let name = protocol::escape_text(name);
        let message =
            format!("`{name}` was not started, because this machine cannot confine it: {reason}");
        NativeError::new(ErrorCode::PlatformUnsupported, message)
    })
}

/// Applies the policy to a command.
pub(super) fn judge(policy: &Policy, command: &policy::Command) -> Result<Judged, NativeError> {
    match policy.command(command) {
        Judged::Denied(reason) => {
            let name = protocol::escape_text(&command.argv[0]);
            let message = format!("the policy does not allow the command `{name}`: {reason}");
            Err(NativeError::new(ErrorCode::PolicyDenied, message))
        }
        judged => Ok(judged),
    }
}

/// Checks that a call may run a command: by its rules, or because the user was asked about it.
pub(super) fn permit(command: &policy::Command, granted: &Granted) -> Result<(), NativeError> {
    match judge(granted.policy().policy(), command)? {
        // Not reached: the user is asked about such a command.
        Judged::Beyond(reason) if !granted.was_asked() => {
            Err(NativeError::new(ErrorCode::PolicyDenied, reason))
        }
        _ => Ok(()),
    }
}

impl Commands<'_> {
    /// Runs a program. Dropping the future kills it and everything that it started.
    pub(super) async fn run(
        &self,
        job: Job,
        cancel: &CancellationToken,
    ) -> Result<Ended, NativeError> {
        let Job { mut argv, program, found, folder, stdin, limit, kept, .. } = job;
        let mut variables = self.environment.base();
        let temporary = tempfile::Builder::new().prefix("pml-").tempdir().map_err(|error| {
            let message = format!("cannot create a folder for temporary files: {error}");
            NativeError::new(ErrorCode::ToolFailed, message)
        })?;
        let (access, changes) = match job.reach {
            CommandReach::Reading => (CommandAccess::Workspace, false),
            CommandReach::Changing(access) => (access, true),
        };
        let confinement = (access != CommandAccess::Unconfined).then(|| {
            let mut confinement =
                confinement(&program, temporary.path(), &mut variables, Machine::OfUser);
            if access == CommandAccess::Network {
                confinement.network = Network::All;
            }
            let places = if changes { &mut confinement.write } else { &mut confinement.read };
            places.extend(self.workspace.root_paths());
            confinement
        });
        variables.extend(job.variables);
        let file = program.file;
        if git::is_git(&file) || git::is_git(&found) {
            git::restrict(&mut argv, &mut variables, &file, &folder).await?;
        }
        // The resolved file, so that nothing searches the `PATH` or follows a link again.
        let mut full: Vec<OsString> = vec![found.into_os_string()];
        full.extend(argv[1..].iter().map(Into::into));
        let input = Input::Bytes(stdin.len());
        let mut command = self.supervisor.command(input, confinement.as_ref(), &file, &full);
        command.envs(variables).current_dir(&folder);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        // Without the supervisor, descendants of the program would live on. It kills them itself
        // when its pipe closes.
        command.kill_on_drop(false);
        let cannot = |error: std::io::Error| {
            NativeError::new(ErrorCode::ToolFailed, format!("cannot start `{}`: {error}", argv[0]))
        };
        let started = Instant::now();
        let mut child = command.spawn().map_err(cannot)?;
        // The supervisor kills the program when this end of the pipe closes: when this future is dropped, or when the
        // process exits.
        let mut life_line = child.stdin.take().expect("standard input was piped above");
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let run = async {
            // The pipe stays open after the input, because its end kills the program. The
            // supervisor counts the bytes and then closes the pipe of the program itself.
            let feed = async {
                // A program that exits without reading its input is not an error.
                let _ = life_line.write_all(&stdin).await;
                let _ = life_line.flush().await;
            };
            // Concurrently: a program blocks when one of its pipes is full and nobody reads it.
            let (stdout, stderr, ()) = tokio::join!(capture(out, kept), capture(err, kept), feed);
            (stdout, stderr, child.wait().await)
        };
        let (stdout, stderr, status) = tokio::select! {
            () = cancel.cancelled() => {
                return Err(NativeError::new(ErrorCode::Cancelled, format!("`{}` was cancelled", argv[0])));
            }
            done = tokio::time::timeout(limit, run) => done.map_err(|_| {
                let message = format!("`{}` did not exit within {} ms and was killed", argv[0], limit.as_millis());
                NativeError::new(ErrorCode::ToolTimeout, message)
            })?,
        };
        let exit_code = status.ok().and_then(|status| status.code());
        Ok(Ended { exit_code, stdout, stderr, took: started.elapsed() })
    }
}

/// Reads a stream to its end and keeps its beginning.
async fn capture(stream: Option<impl AsyncRead + Unpin>, limit: usize) -> Stream {
    let mut kept = Stream { bytes: Vec::new(), is_cut: false };
    if let Some(mut stream) = stream {
        let mut chunk = vec![0; 16 * 1024];
        // A read error counts as the end of the stream.
        while let Ok(read @ 1..) = stream.read(&mut chunk).await {
            // Output beyond the limit is read too, because a full pipe would block the program.
            let room = limit - kept.bytes.len();
            kept.bytes.extend_from_slice(&chunk[..read.min(room)]);
            kept.is_cut |= read > room;
        }
    }
    kept
}
