//! The offer of `pml init`: the gateway is told the tools of the project's servers, if the user says so.

use protocol::escape_text;

use super::Setup;
use crate::app::App;
use crate::args::Settings;
use crate::commands::terminal::say;
use crate::config;
use crate::error::CliError;

/// Asks whether the gateway is told the tools of the servers whose entries do not say so, if there are any, an API key and
/// a terminal. Without a clear yes, nothing is told.
///
/// # Errors
/// Returns that `.pml.json` cannot be used.
pub(super) async fn offer(setup: &Setup<'_>) -> Result<(), CliError> {
    let refused = |error: config::ConfigError| CliError::cannot_run(error.to_string());
    let names = config::undecided(&setup.workspace, &setup.store).map_err(refused)?;
    if !setup.options.sync_tools {
        if names.is_empty() || !setup.asks() {
            return Ok(());
        }
        // Without a key, nothing would be told.
        let Some(gateway) = gateway_with_key(setup.settings).await? else { return Ok(()) };
        if !setup.is_confirmed(question(&names, &gateway)).await? {
            return Ok(());
        }
    }
    // Also without names: a file that is not trusted is not passed over.
    config::sync(&setup.workspace, &setup.store, &names).map_err(refused)?;
    let done = match names.is_empty() {
        true => "no server was changed: each says whether the gateway is told its tools".to_owned(),
        false => format!("`\"sync_tools\": true` was added to {}", listed(&names)),
    };
    say(&format!("`{}`: {done}.\n", config::FILE))
}

/// Returns the gateway, if this user has an API key or a sign-in for it.
async fn gateway_with_key(settings: &Settings) -> Result<Option<String>, CliError> {
    let app = App::open(settings)?;
    // An invalid URL is told by `pml doctor`; the project is set up without a gateway.
    let Ok(cloud) = app.cloud() else { return Ok(None) };
    Ok(cloud.has_key().await.then(|| cloud.gateway().to_string()))
}

fn listed(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{}`", escape_text(name))).collect();
    names.join(", ")
}

fn question(names: &[String], gateway: &str) -> String {
    format!(
        "\nYour own MCP servers here: {}.\n\
         {gateway} can be told their tools, so that you find them through it with agents that do not use `pml`.\n\
         - Sent, after a server has started: its namespace, a random id of this workspace, and of each tool the name, the\n\
         \x20 description, the schemas and the protocol's hints. Their texts are sent as the server writes them, without what `pml`\n\
         \x20 recognizes as a secret, a folder of yours, or a part of the command.\n\
         - Not sent: commands, arguments, variables, addresses, code, and arguments and results of calls.\n\
         - Only you find them. The gateway's operator has the database. The tools still run here only.\n\
         See docs/tool-sync.md. Tell the gateway these tools? [y/N]: ",
        listed(names)
    )
}
