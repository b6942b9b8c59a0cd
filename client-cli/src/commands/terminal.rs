//! Input and output of the commands: program files, stdin, stdout and stderr.

use std::io::{BufRead as _, Read as _, Write as _};
use std::path::Path;

use protocol::redaction::keys_in_use;
use protocol::{CODE_FIELD_LIMIT, ErrorCode};
use tokio_util::sync::CancellationToken;

use crate::error::CliError;

/// The maximum number of bytes read of a program's file: enough to report how far it exceeds the limit.
const FILE_LIMIT: usize = 8 * CODE_FIELD_LIMIT;

/// Reads a program from a file, or from stdin for `-`.
///
/// # Errors
/// Returns an error for a file that is unreadable, too large or not UTF-8.
pub(super) async fn read_program(
    path: &Path,
    stop: &CancellationToken,
) -> Result<String, CliError> {
    let path = path.to_owned();
    blocking(stop, move || read_blocking(&path)).await?
}

/// Runs a read that may block forever, as that of a terminal or a FIFO; a signal still ends the command.
///
/// # Errors
/// Returns an error if a signal ended the command first.
pub(super) async fn blocking<T: Send + 'static>(
    stop: &CancellationToken,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CliError> {
    let read = tokio::task::spawn_blocking(read);
    let read = unless_stopped(stop, async { Ok::<_, CliError>(read.await) }).await?;
    read.map_err(|error| CliError::failed(error.to_string()))
}

/// Waits for a result, unless a signal ends the command first.
///
/// # Errors
/// Returns the error of `work`, or that of an interrupted command.
pub(super) async fn unless_stopped<T, E: Into<CliError>>(
    stop: &CancellationToken,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, CliError> {
    tokio::select! {
        done = work => done.map_err(Into::into),
        () = stop.cancelled() => Err(interrupted()),
    }
}

/// Returns the error for a command that was ended by a signal.
pub(super) fn interrupted() -> CliError {
    CliError::from_code(ErrorCode::Cancelled, "interrupted by a signal")
}

/// Shows a question and reads the line of the answer.
///
/// # Errors
/// Returns that the terminal cannot be used, or that a signal ended the command first.
pub(super) async fn ask_line(
    question: String,
    stop: &CancellationToken,
) -> Result<String, CliError> {
    let read = blocking(stop, move || {
        {
            // Release the lock before waiting: the code that ends this command writes to stderr.
            let mut err = std::io::stderr().lock();
            err.write_all(question.as_bytes()).and_then(|()| err.flush())?;
        }
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        Ok::<_, std::io::Error>(line)
    });
    let line = read.await.inspect_err(|_| {
        // The cursor is still on the line of the question.
        note("\n");
    })?;
    line.map_err(|error| CliError::failed(format!("cannot ask: {error}")))
}

/// Reads the answer to a question that was shown; anything except a clear yes means no. Before signals are handled only.
///
/// # Errors
/// Returns that the terminal cannot be used.
pub(super) fn confirmed() -> Result<bool, CliError> {
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| CliError::failed(format!("cannot ask: {error}")))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn read_blocking(path: &Path) -> Result<String, CliError> {
    let shown = path.display();
    let mut bytes = Vec::new();
    // One byte beyond the limit distinguishes too large from just small enough.
    let limit = FILE_LIMIT as u64 + 1;
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.map_err(|error| CliError::cannot_run(format!("cannot read `{shown}`: {error}")))?;
    if bytes.len() > FILE_LIMIT {
        return Err(CliError::from_code(
            ErrorCode::SourceTooLarge,
            format!("`{shown}` has more than {FILE_LIMIT} bytes"),
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CliError::cannot_run(format!("`{shown}` is not UTF-8 text: byte {at} is not valid"))
    })
}

/// Writes to stdout; a closed pipe is an error, never a panic.
pub(super) fn say(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| CliError::failed(format!("cannot write to stdout: {error}")))
}

/// Writes to stderr. A failure is ignored: there is nowhere to report it.
pub(super) fn note(text: &str) {
    // Redacted like the log: a message may quote what a library or a server returned.
    let _ = std::io::stderr().lock().write_all(keys_in_use().text(text).as_bytes());
}

/// Escapes control characters of a text that is printed on a terminal: a result may contain terminal escape sequences
/// from a file or a server. A pipe gets the text unchanged.
pub(super) fn for_terminal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for part in text.split_inclusive(['\n', '\t']) {
        // Not by character: whether a selector is hidden depends on the one before it.
        let line = part.trim_end_matches(['\n', '\t']);
        out += &protocol::escape_text(line);
        out += &part[line.len()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AP-02: a result cannot control the terminal that shows it.
    #[test]
    fn results_on_a_terminal_are_escaped() {
        assert_eq!(
            for_terminal("a\tä\n\u{1b}]52;c;x\u{7}\u{202e}"),
            "a\tä\n\\u{1b}]52;c;x\\u{7}\\u{202e}"
        );
    }
}
