//! `pml unpublish NAME`: deletes a capability or a server permanently.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use protocol::{ErrorBody, ErrorCode, Fqdn, Scope, ToolId};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::args::Unpublish;
use crate::commands::terminal::{ask_line, interrupted, say};
use crate::error::CliError;

/// Runs the command.
///
/// # Errors
/// Returns why the entry was not deleted.
pub(crate) async fn unpublish(
    app: Arc<App>,
    unpublish: Unpublish,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let (path, what) = path(&unpublish.name)?;
    let cloud = app.cloud()?;
    if !unpublish.yes {
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            return Err(CliError::cannot_run(
                "there is no terminal to ask on; nothing was deleted",
            )
            .with_hint("`--yes` deletes without asking."));
        }
        let question = format!(
            "Delete {what} on {}, with all its versions? The name can never be used again. [y/N]: ",
            cloud.gateway()
        );
        let answer = ask_line(question, stop).await?;
        if !matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            return Err(CliError::cannot_run("nothing was deleted"));
        }
    }
    // An interruption only ends the wait: a request that was sent may still take effect.
    tokio::select! {
        deleted = cloud.delete_entry(&path) => deleted.map_err(|error| name_missing(error, &what))?,
        () = stop.cancelled() => return Err(interrupted()),
    }
    say(&format!("{what} was deleted permanently.\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the path of an entry beneath `/api/v1`, and its name for messages. A name with an action is a capability, one
/// without a server.
///
/// # Errors
/// Returns an error for an invalid name.
pub(super) fn path(name: &str) -> Result<(String, String), CliError> {
    let wrong = |error: protocol::NameError| CliError::cannot_run(error.to_string());
    let parts = name.split_once(':').or_else(|| name.split_once('.'));
    let Some((namespace, action)) = parts else {
        // The scope is a placeholder to check the name; the gateway uses the scope of the API key.
        Fqdn::server(Scope::public(), name).map_err(wrong)?;
        return Ok((format!("servers/{name}"), format!("server `{name}`")));
    };
    let id = ToolId::new(namespace, action).map_err(wrong)?;
    Ok((format!("capabilities/{id}"), format!("capability `{id}`")))
}

/// Adds the name of the entry to the error `NOT_FOUND`.
pub(super) fn name_missing(mut error: ErrorBody, what: &str) -> ErrorBody {
    // The gateway gives this answer for entries of other projects too, so the new message and
    // hint name both causes.
    if error.error_code == ErrorCode::NotFound {
        error.message = format!("{what} is not published in the project of your API key");
        error.hint = "Check the name (`NAMESPACE.ACTION` is a capability, `NAMESPACE` a server), and the API key's project with `pml doctor`.".to_owned();
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_an_action_is_a_capability() {
        assert_eq!(path("notes").unwrap().0, "servers/notes");
        assert_eq!(path("words.shout").unwrap().0, path("words:shout").unwrap().0);
        for name in ["", "a/b", "a:b/../c", "a.b.c", "a?b", "a%2fb", ":b"] {
            path(name).expect_err(name);
        }
    }
}
