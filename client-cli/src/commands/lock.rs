//! `pml lock FILE`: pins a program and the tools that it reaches, or shows what changed since then.

pub(super) mod update;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use analysis::Bundle;
use protocol::{ErrorCode, escape_text};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::program;
use super::terminal::{say, unless_stopped};
use crate::app::App;
use crate::args::Lock;
use crate::consent::program_lock::{Difference, LockFile, ProgramLock};
use crate::error::CliError;
use crate::run::prepare;

/// The exit code of `--check` if something changed.
const CHANGED: u8 = 2;

/// Refuses stdin, beside which no lock can be.
pub(super) fn check_file(file: &Path) -> Result<(), CliError> {
    match file.as_os_str() == "-" {
        true => Err(CliError::cannot_run("a program from stdin has no lock; name its file")),
        false => Ok(()),
    }
}

/// Runs the command.
///
/// # Errors
/// Returns why the program cannot be locked, or why its lock cannot be read or written.
pub(super) async fn lock(
    app: Arc<App>,
    of: &Path,
    options: &Lock,
    program: &Bundle,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let file = format!("{}.lock", escape_text(&of.to_string_lossy()));
    // First: a malformed lock is not replaced, and no gateway is asked for nothing.
    let before = LockFile::read(of)?;
    if !options.check {
        let now = resolve(&app, program, stop).await?;
        return write(of, &file, options, before.as_ref(), &now);
    }
    let before = before.ok_or_else(|| {
        let message = format!("`{file}` does not exist");
        let hint = "Without `--check`, this command writes it.";
        CliError::from_code(ErrorCode::ConfigInvalid, message).with_hint(hint)
    })?;
    let now = resolve(&app, program, stop).await?;
    show_difference(&file, &before, &now, options.json)
}

/// Returns what the program would be locked to now.
async fn resolve(
    app: &Arc<App>,
    program: &Bundle,
    stop: &CancellationToken,
) -> Result<ProgramLock, CliError> {
    let resolved = async {
        let lock = prepare::lock(app, &program.code, stop).await;
        lock.map_err(|mut error| {
            program::locate(program, &mut error);
            error
        })
    };
    let resolved = unless_stopped(stop, resolved).await;
    app.shut_down().await;
    resolved
}

/// Writes the lock, unless it is there already.
fn write(
    of: &Path,
    file: &str,
    options: &Lock,
    before: Option<&LockFile>,
    now: &ProgramLock,
) -> Result<ExitCode, CliError> {
    let is_current = before.is_some_and(|before| before.lock == *now);
    if !is_current {
        LockFile::write(of, now)?;
    }
    let difference = before.map(|before| Difference::between(&before.lock, now));
    if options.json {
        say_json(&json!({
            "file": file, "written": !is_current, "difference": difference,
            "not_known": now.unknown(), "lock": now,
        }))?;
    } else {
        say(&written_text(file, is_current, now, difference.as_ref()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows what changed since the program was locked.
fn show_difference(
    file: &str,
    before: &LockFile,
    now: &ProgramLock,
    json: bool,
) -> Result<ExitCode, CliError> {
    let difference = Difference::between(&before.lock, now);
    let is_equal = difference.is_empty();
    if json {
        let mut answer = json!(difference);
        answer["file"] = json!(file);
        answer["equal"] = json!(is_equal);
        answer["not_known"] = json!(before.lock.unknown());
        say_json(&answer)?;
    } else {
        let mut text = match is_equal {
            true => format!("Nothing changed since {file} was written.\n"),
            false => format!("Changed since {file} was written:\n"),
        };
        text += &listed(difference.lines());
        let places: Vec<String> =
            difference.not_compared().iter().map(ToString::to_string).collect();
        if !places.is_empty() {
            text += "Not compared before its first call, because its server has not listed its tools on this machine:\n";
            text += &listed(places);
        }
        text += &unknown_text(&before.lock);
        if !is_equal {
            text += &format!("{}\n", before.hint());
        }
        say(&text)?;
    }
    Ok(if is_equal { ExitCode::SUCCESS } else { ExitCode::from(CHANGED) })
}

fn written_text(
    file: &str,
    is_current: bool,
    now: &ProgramLock,
    difference: Option<&Difference>,
) -> String {
    let (done, count) = (if is_current { "is up to date" } else { "was written" }, now.count());
    let tools = if count == 1 { "tool" } else { "tools" };
    let mut text = format!("{file} {done}: {count} {tools}, program {}\n", now.program_hash());
    text += &listed(now.lines());
    if let Some(difference) = difference.filter(|difference| !difference.is_empty()) {
        text += "Changed since it was written last:\n";
        text += &listed(difference.lines());
    }
    text + &unknown_text(now)
}

/// Says what is not locked.
fn unknown_text(lock: &ProgramLock) -> String {
    let unknown: Vec<String> = lock.unknown().iter().map(ToString::to_string).collect();
    match unknown.is_empty() {
        true => String::new(),
        false => format!("Not known, so not locked:\n{}", listed(unknown)),
    }
}

fn listed(lines: Vec<String>) -> String {
    lines.iter().map(|line| format!("- {line}\n")).collect()
}

fn say_json(value: &Value) -> Result<(), CliError> {
    say(&format!("{value:#}\n"))
}
