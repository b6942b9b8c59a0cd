//! The question of `pml init` for an API key. Without one, `pml` runs programs whose tools are all on this machine.

use super::Setup;
use crate::commands::login;
use crate::commands::terminal::{ask_line, note};
use crate::error::CliError;

/// Asks a person for the gateway, if none is configured, and for its API key, if there is none.
///
/// # Errors
/// Returns that the gateway does not accept the key, which is not stored then.
pub(super) async fn offer(setup: &Setup<'_>) -> Result<(), CliError> {
    if !setup.asks() {
        return Ok(());
    }
    let mut settings = setup.settings.clone();
    if login::needs_gateway(&settings)? {
        let question = "\nThe URL of your gateway (Enter for none; programs with local tools run without one): ";
        let answer = ask_line(question.to_owned(), setup.stop).await?;
        if answer.trim().is_empty() {
            note("Without a gateway. `pml login --url URL` adds one later.\n");
            return Ok(());
        }
        settings.url = Some(answer.trim().to_owned());
    } else if login::has_key(&settings).await? {
        return Ok(());
    }
    if !login::from_question(&settings, setup.stop).await? {
        note("Without an API key. `pml login` stores one later.\n");
    }
    Ok(())
}
