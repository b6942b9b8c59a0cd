//! Supervisors: the small processes between `pml` and every program that it starts.
//!
//! `pml` starts its own binary as a supervisor, which starts the program. The supervisor is a subreaper, so orphaned
//! descendants become its children. It watches the read end of a pipe on its standard input, whose write end only
//! `pml` holds. When that end closes, because `pml` closed it or died in any way, the supervisor kills every
//! descendant and exits.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use sandbox::{Bounds, Confinement};

use super::confinement;

mod descendants;
pub mod usage;

/// The first argument of a supervisor.
const SUPERVISE: &str = "__supervise";

/// The first argument of the process that executes the program.
const BECOME: &str = "__become";

/// How long a program may take to exit after its input was closed.
const END_GRACE: Duration = Duration::from_millis(1_000);

/// How long it may take after `SIGTERM`.
const TERM_GRACE: Duration = Duration::from_millis(500);

/// How often orphaned descendants are reaped.
const REAPED_EVERY: Duration = Duration::from_secs(5);

/// How often the processes of a bounded program are counted, with their memory.
const COUNTED_EVERY: Duration = Duration::from_millis(500);

/// How many counts there are for each time that its files are looked at.
const COUNTS_PER_LOOK: u32 = 4;

/// The exit codes of bounded programs that were ended because of what they used altogether: too many processes, too much
/// memory, too many or too large files. Such a program itself never ends with one of them.
pub const TOO_MANY: i32 = 122;
/// See [`TOO_MANY`].
pub const TOO_LARGE: i32 = 123;
/// See [`TOO_MANY`].
pub const TOO_FULL: i32 = 124;

/// The exit code of a program that could not be started.
pub const CANNOT_START: i32 = 127;

/// The program's standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// The pipe from `pml`. When `pml` closes it, the program should exit.
    Passed,
    /// The first bytes of the pipe from `pml`, followed by end of input.
    Bytes(usize),
}

/// The binary that supervisors run.
#[derive(Debug, Clone)]
pub struct Supervisor {
    program: PathBuf,
}

impl Default for Supervisor {
    /// Uses the running binary, even if its file has been replaced.
    fn default() -> Self {
        Self { program: PathBuf::from("/proc/self/exe") }
    }
}

impl Supervisor {
    /// Uses another `pml` binary.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// Returns the command that runs a program under supervision, in a separate process group and with an empty
    /// environment. It may be confined, and its file may have another name than `argv` gives it.
    ///
    /// Standard input is a pipe. The caller must keep its write end open for as long as the program may run.
    pub fn command<S: AsRef<OsStr>>(
        &self,
        input: Input,
        confinement: Option<&Confinement>,
        file: &Path,
        argv: &[S],
    ) -> Command {
        let mut command = Command::new(&self.program);
        let input = match input {
            Input::Passed => "passed".to_owned(),
            Input::Bytes(count) => count.to_string(),
        };
        command.arg0("pml").arg(SUPERVISE).arg(input);
        command.args(confinement::arguments(confinement)).arg(file).args(argv);
        // A group of its own is not reached by Ctrl-C at the terminal, and can be killed as a
        // whole.
        command.env_clear().process_group(0).stdin(Stdio::piped());
        command
    }
}

/// Runs as a supervisor, or executes the program of one, if this process was started as such. Otherwise returns at
/// once.
///
/// Must be called first in `main`, before any thread starts.
pub fn main_if_requested() {
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

/// Binds this process to the supervisor's life and confines it, then executes the program.
fn become_program(parent: Option<&str>, argv: Vec<std::ffi::OsString>) -> i32 {
    // A program of root could otherwise read the memory of `pml`, and with it the API key.
    sandbox::give_up_tracing();
    let parent = parent.and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
    // The kernel sends the signal when the thread that forked this process ends. That is the main
    // thread of the supervisor, which lives as long as the supervisor.
    let bound = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // The supervisor may have died before the call above took effect.
    if bound.is_err() || parent.is_none() || rustix::process::getppid() != parent {
        return CANNOT_START;
    }
    let mut argv = argv.into_iter();
    let Some(confinement) = confinement::parse(&mut argv) else { return CANNOT_START };
    let (Some(file), Some(name)) = (argv.next(), argv.next()) else { return CANNOT_START };
    let confined = confinement.map_or(Ok(()), |confinement| confinement.apply());
    if let Err(error) = confined {
        report(&format!("`{}` was not started: {error}", name.to_string_lossy()));
        return CANNOT_START;
    }
    let error = Command::new(file).arg0(&name).args(argv).exec();
    report(&format!("cannot start `{}`: {error}", name.to_string_lossy()));
    CANNOT_START
}

fn report(message: &str) {
    // A failure is ignored: if stderr is closed, there is nowhere to report it.
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("pml: {message}\n").as_bytes());
}

fn supervise(input: Option<&str>, argv: Vec<std::ffi::OsString>) -> i32 {
    match try_supervise(input, argv) {
        Ok(code) => code,
        Err(error) => {
            report(&format!("cannot supervise: {error}"));
            CANNOT_START
        }
    }
}

fn try_supervise(input: Option<&str>, argv: Vec<std::ffi::OsString>) -> std::io::Result<i32> {
    // Before the program starts: descriptors that this process has inherited must not reach it.
    sandbox::keep_private().map_err(std::io::Error::other)?;
    // Also before: a descendant that is orphaned earlier would become a child of another process.
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
    // A pidfd, so that a single `poll` can wait for the program and for the pipe.
    let ended = rustix::process::pidfd_open(program, PidfdFlags::empty())?;
    // The supervisor must not hold the output pipes open after the program exits.
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    if let (Some(count), Some(mut pipe)) = (count, child.stdin.take()) {
        // In a thread: a program that does not read its input blocks the copy, and the pipe has to
        // be watched meanwhile.
        std::thread::spawn(move || {
            let mut input = std::io::Read::take(std::io::stdin(), count);
            // A program that does not read its input is not an error.
            let _ = std::io::copy(&mut input, &mut pipe);
        });
    }
    let confined = confinement::parse(&mut argv.into_iter()).flatten();
    let bounded = confined.and_then(|it| Some(Bounded { bounds: it.bounds?, folders: it.write }));
    let status = watch(program, &ended, count.is_none(), bounded.as_ref())?;
    // After a normal exit too, because the program may have left processes in the background.
    descendants::kill_all();
    Ok(status)
}

/// What a program may use altogether.
struct Bounded {
    bounds: Bounds,
    /// Where it may write.
    folders: Vec<PathBuf>,
}

impl Bounded {
    /// Returns the exit code of a program that uses more than it may.
    fn exceeded(&self, looks_at_files: bool) -> Option<i32> {
        let Bounds { processes, memory, folder, .. } = self.bounds;
        let found = descendants::up_to(processes);
        if found.len() > processes as usize {
            return Some(TOO_MANY);
        }
        if usage::memory(&found) > memory {
            return Some(TOO_LARGE);
        }
        let is_full = looks_at_files && usage::stored(&self.folders, &found) > folder;
        is_full.then_some(TOO_FULL)
    }
}

/// Waits until the program exits, until `pml` closes the pipe, or until it uses more than it may; returns the exit code.
fn watch(
    program: Pid,
    ended: &OwnedFd,
    has_input: bool,
    bounded: Option<&Bounded>,
) -> std::io::Result<i32> {
    let exit_code = || match exit_code(program)? {
        TOO_MANY | TOO_LARGE | TOO_FULL if bounded.is_some() => Ok(1),
        code => Ok::<_, std::io::Error>(code),
    };
    let has_ended = |limit: Duration, or_owner: bool| -> std::io::Result<Option<bool>> {
        let deadline = Instant::now() + limit;
        loop {
            let stdin = rustix::stdio::stdin();
            // `poll` reports a hang-up even if no event is requested.
            let mut watched =
                vec![PollFd::new(ended, PollFlags::IN), PollFd::new(&stdin, PollFlags::empty())];
            // Once the pipe is closed, it would end every `poll` at once.
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
    let mut counts = 0_u32;
    loop {
        // Wake up to reap orphaned descendants that have exited, and more often to count the living.
        let pause = if bounded.is_some() { COUNTED_EVERY } else { REAPED_EVERY };
        let ours = has_ended(pause, true)?;
        match ours {
            Some(true) => return exit_code(),
            Some(false) => break,
            None => descendants::reap_except(program),
        }
        counts = counts.wrapping_add(1);
        let exceeded = bounded.and_then(|it| it.exceeded(counts.is_multiple_of(COUNTS_PER_LOOK)));
        if let Some(code) = exceeded {
            return Ok(code);
        }
    }
    // `pml` has exited or closed the pipe. A server that reads its stdin sees the end of input and exits by itself.
    if has_input {
        if has_ended(END_GRACE, false)? == Some(true) {
            return exit_code();
        }
        // If it has just exited, it is still a zombie, so the pid cannot belong to another process.
        let _ = rustix::process::kill_process(program, Signal::TERM);
        if has_ended(TERM_GRACE, false)? == Some(true) {
            return exit_code();
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
