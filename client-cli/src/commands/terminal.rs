//! Input and output of the commands: program files, stdin, stdout and stderr.

use std::io::{Read as _, Write as _};
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
    // A terminal or a FIFO may never reach its end; a signal must still end the command.
    let read = tokio::task::spawn_blocking(move || read_blocking(&path));
    tokio::select! {
        read = read => read.map_err(|error| CliError::failed(error.to_string()))?,
        () = stop.cancelled() => Err(interrupted()),
    }
}

/// Returns the error for a command that was ended by a signal.
pub(super) fn interrupted() -> CliError {
    CliError::from_code(ErrorCode::Cancelled, "interrupted by a signal")
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
    let shown = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        other => protocol::escape_text(other.encode_utf8(&mut [0; 4])),
    };
    text.chars().map(shown).collect()
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
