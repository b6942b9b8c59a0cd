//! Lower bounds: the cost of a process, a fork and a call that do nothing else.

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::lines::Lines;
use crate::ours::{Ours, echo};

/// The argument with which this binary only runs [`serve_forks`].
pub(crate) const FORKS: &str = "__floor";

/// Starts `/bin/true` and waits for its end.
pub(crate) fn bare_process() -> Result<Duration, Box<dyn Error>> {
    let started = Instant::now();
    let status = Command::new("/bin/true")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    let took = started.elapsed();
    if status.success() { Ok(took) } else { Err("/bin/true failed".into()) }
}

/// A separate process that forks. A fork makes all pages of its parent copy-on-write, which would slow down the next
/// measurement if the benchmark's own process forked.
pub(crate) struct Forks(Lines);

impl Forks {
    /// Starts this binary again as the forking process.
    pub(crate) fn start() -> Result<Forks, Box<dyn Error>> {
        Lines::start(Command::new(std::env::current_exe()?).arg(FORKS)).map(Forks)
    }

    /// Forks once, waits for the child's exit, and returns the time.
    pub(crate) fn fork(&mut self) -> Result<Duration, Box<dyn Error>> {
        Ok(Duration::from_nanos(self.0.ask("")?.trim().parse()?))
    }
}

/// Forks once for each line of stdin, and prints the time in nanoseconds.
pub(crate) fn serve_forks() -> Result<(), Box<dyn Error>> {
    let mut stdout = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        line?;
        writeln!(stdout, "{}", bare_fork()?.as_nanos())?;
        stdout.flush()?;
    }
    Ok(())
}

fn bare_fork() -> Result<Duration, Box<dyn Error>> {
    let started = Instant::now();
    #[expect(unsafe_code, reason = "nothing safe forks")]
    // SAFETY: the child only calls `_exit`, which is allowed after a fork of a process with several threads.
    let pid = unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(0);
        }
        pid
    };
    let mut status = 0;
    #[expect(unsafe_code, reason = "waits for one pid, not for any child")]
    // SAFETY: `status` is a valid place for one number.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    let took = started.elapsed();
    if pid > 0 && waited == pid { Ok(took) } else { Err("cannot fork".into()) }
}

/// Calls the tool `count` times without a process in between, one after the other or concurrently. As in a program's
/// call, arguments and answers are serialized and parsed. Returns the sum of the answers.
pub(crate) fn calls(
    ours: &Ours,
    count: u64,
    in_turn: bool,
) -> Result<(Value, Duration), Box<dyn Error>> {
    let task = ours.runtime.spawn(async move {
        let started = Instant::now();
        let mut sum = 0;
        if in_turn {
            for number in 0..count {
                sum += call(number).await?;
            }
        } else {
            sum = try_join_all((0..count).map(call)).await?.into_iter().sum();
        }
        Ok::<_, String>((json!(sum), started.elapsed()))
    });
    Ok(ours.runtime.block_on(task)??)
}

async fn call(number: u64) -> Result<u64, String> {
    let args = through_json(&json!({ "i": number }))?;
    let answer = echo(args).await.map_err(|error| error.message)?;
    through_json(&answer)?["i"].as_u64().ok_or_else(|| "the tool answered no number".to_owned())
}

fn through_json(value: &Value) -> Result<Value, String> {
    serde_json::from_str(&value.to_string()).map_err(|e| e.to_string())
}
