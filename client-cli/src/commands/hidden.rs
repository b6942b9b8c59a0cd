//! Reads a secret from a terminal without echo.

use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use tokio_util::sync::CancellationToken;

use super::terminal::{interrupted, note};
use crate::error::CliError;

/// Prompts for a line on stdin, which must be a terminal.
///
/// # Errors
/// Returns an error if the terminal cannot be read, or if the user or a signal interrupts the prompt.
pub(super) async fn ask(prompt: &str, stop: &CancellationToken) -> Result<String, CliError> {
    let failed =
        |error: std::io::Error| CliError::failed(format!("cannot read from the terminal: {error}"));
    let before = tcgetattr(stdin()).map_err(|errno| failed(errno.into()))?;
    // Before the prompt: what is pasted at its sight must not be shown either.
    let mut silent = before.clone();
    silent.local_modes -= LocalModes::ECHO;
    tcsetattr(stdin(), OptionalActions::Now, &silent).map_err(|errno| failed(errno.into()))?;
    note(prompt);
    // The user may never answer; a signal must still end the command.
    let read = tokio::task::spawn_blocking(|| {
        // By default, the library opens `/dev/tty`, which need not be the terminal that was
        // checked.
        let config = rpassword::ConfigBuilder::new().input_file_path("/dev/stdin").output_discard();
        rpassword::read_password_with_config(config.build())
    });
    let read = tokio::select! {
        read = read => Some(read),
        () = stop.cancelled() => None,
    };
    // After a signal the reader is abandoned, still blocked, and does not turn the echo on again.
    tcsetattr(stdin(), OptionalActions::Now, &before).map_err(|errno| failed(errno.into()))?;
    // The newline that the user typed was not echoed either.
    note("\n");
    let read = match read {
        Some(Ok(read)) => Some(read),
        Some(Err(error)) => return Err(CliError::failed(error.to_string())),
        None => None,
    };
    match read {
        // The library turns Ctrl-C into this error, because it switches off signals from the
        // keyboard. The signal that it raises instead may be noticed only later.
        Some(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => Err(interrupted()),
        Some(read) => read.map_err(failed),
        None => Err(interrupted()),
    }
}
