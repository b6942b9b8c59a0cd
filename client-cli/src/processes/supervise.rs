//! The small process between `pml` and every program that it starts.
//!
//! `pml` starts its own binary as a supervisor, which starts the program. The supervisor is a subreaper, so orphaned
//! descendants become its children. It watches the read end of a pipe on its standard input, whose write end only
//! `pml` holds. When that end closes, because `pml` closed it or died in any way, the supervisor kills every
//! descendant and exits.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

mod descendants;

/// The first argument of a supervisor.
const SUPERVISE: &str = "__supervise";

/// The first argument of the step that becomes the program.
const BECOME: &str = "__become";

/// How long a program may take to exit after its input was closed.
const END_GRACE: Duration = Duration::from_millis(1_000);

/// How long it may take after `SIGTERM`.
const TERM_GRACE: Duration = Duration::from_millis(500);

/// The exit code of a program that could not be started.
pub(crate) const CANNOT_START: i32 = 127;

/// The program's standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// The pipe from `pml`; its end requests the program's exit.
    Passed,
    /// The first bytes of the pipe from `pml`, then its end.
    Bytes(usize),
}

/// Names the binary that supervises.
#[derive(Debug, Clone)]
pub struct Supervisor {
    program: PathBuf,
}

impl Default for Supervisor {
    /// Uses the running binary, also when its file was replaced meanwhile.
    fn default() -> Self {
        Self { program: PathBuf::from("/proc/self/exe") }
    }
}

impl Supervisor {
    /// Uses another `pml` binary.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// Returns the command that runs `argv` under supervision, in its own
    /// process group and with an empty environment.
    ///
    /// The caller must pipe standard input and keep the write end for as long
    /// as the program may live.
    pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(&self, input: Input, argv: &[S]) -> Command {
        let mut command = Command::new(&self.program);
        let input = match input {
            Input::Passed => "passed".to_owned(),
            Input::Bytes(count) => count.to_string(),
        };
        command.arg0("pml").arg(SUPERVISE).arg(input).args(argv);
        command.env_clear().process_group(0).stdin(Stdio::piped());
        command
    }
}

/// Becomes a supervisor, or the program of one, if this process was started
/// as such; otherwise returns at once.
///
/// Must be called first in `main`, before there are threads.
pub(crate) fn main_if_requested() {
    let mut arguments = std::env::args_os().skip(1);
    let Some(first) = arguments.next() else { return };
    let code = if first == SUPERVISE {
        let input = arguments.next().and_then(|text| text.into_string().ok());
        supervise(input.as_deref(), arguments.collect())
    } else if first == BECOME {
        let parent = arguments.next().and_then(|text| text.into_string().ok());
        become_program(parent.as_deref(), arguments.collect())
    } else {
        return;
    };
    std::process::exit(code);
}

/// Dies with the supervisor, then turns into the program.
fn become_program(parent: Option<&str>, argv: Vec<std::ffi::OsString>) -> i32 {
    sandbox::give_up_tracing();
    let parent = parent.and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
    let bound = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // The supervisor may have died before the line above.
    if bound.is_err() || parent.is_none() || rustix::process::getppid() != parent {
        return CANNOT_START;
    }
    let Some((program, arguments)) = argv.split_first() else { return CANNOT_START };
    let error = Command::new(program).args(arguments).exec();
    complain(&format!("cannot start `{}`: {error}", program.to_string_lossy()));
    CANNOT_START
}

fn complain(message: &str) {
    // If standard error is closed, there is nowhere to report to.
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("pml: {message}\n").as_bytes());
}

fn supervise(input: Option<&str>, argv: Vec<std::ffi::OsString>) -> i32 {
    match try_supervise(input, argv) {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("cannot supervise: {error}"));
            CANNOT_START
        }
    }
}

fn try_supervise(input: Option<&str>, argv: Vec<std::ffi::OsString>) -> std::io::Result<i32> {
    sandbox::keep_private().map_err(std::io::Error::other)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let count: Option<u64> = input.and_then(|text| text.parse().ok());
    let mut command = Command::new("/proc/self/exe");
    command.arg0("pml").arg(BECOME).arg(std::process::id().to_string()).args(&argv);
    command.stdin(match count {
        None => Stdio::inherit(),
        Some(0) => Stdio::null(),
        Some(_) => Stdio::piped(),
    });
    let mut child = command.spawn()?;
    let program = Pid::from_child(&child);
    let ended = rustix::process::pidfd_open(program, PidfdFlags::empty())?;
    // The reader of the program's output must see its end when the program exits.
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    if let (Some(count), Some(mut pipe)) = (count, child.stdin.take()) {
        std::thread::spawn(move || {
            let mut input = std::io::Read::take(std::io::stdin(), count);
            // A program that does not read its input is no failure of ours.
            let _ = std::io::copy(&mut input, &mut pipe);
        });
    }
    let status = watch(program, &ended, count.is_none())?;
    descendants::kill_all();
    Ok(status)
}

/// Waits until the program has ended, or must; returns its exit code.
fn watch(program: Pid, ended: &OwnedFd, has_input: bool) -> std::io::Result<i32> {
    let has_ended = |limit: Duration, or_owner: bool| -> std::io::Result<Option<bool>> {
        let deadline = Instant::now() + limit;
        loop {
            let stdin = rustix::stdio::stdin();
            // No event is requested: a hang-up is always reported.
            let mut watched =
                vec![PollFd::new(ended, PollFlags::IN), PollFd::new(&stdin, PollFlags::empty())];
            watched.truncate(if or_owner { 2 } else { 1 });
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut watched, timeout.as_ref()) {
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(!watched[0].revents().is_empty())),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    };
    loop {
        // Orphans that became ours and ended are collected now and then.
        let ours = has_ended(Duration::from_secs(5), true)?;
        match ours {
            Some(true) => return exit_code(program),
            Some(false) => break,
            None => descendants::collect_except(program),
        }
    }
    // The owner has exited. A server that reads its input notices that by itself.
    if has_input {
        if has_ended(END_GRACE, false)? == Some(true) {
            return exit_code(program);
        }
        let _ = rustix::process::kill_process(program, Signal::TERM);
        if has_ended(TERM_GRACE, false)? == Some(true) {
            return exit_code(program);
        }
    }
    Ok(128 + Signal::KILL.as_raw())
}

fn exit_code(program: Pid) -> std::io::Result<i32> {
    loop {
        match rustix::process::waitpid(Some(program), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                let signal = status.terminating_signal().map(|signal| 128 + signal);
                return Ok(status.exit_status().or(signal).unwrap_or(CANNOT_START));
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
