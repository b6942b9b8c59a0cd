//! `pml run`: serves a capability that was added as an MCP server of its own.

use std::process::ExitCode;
use std::sync::Arc;

use protocol::{ErrorCode, Fqdn, ToolId, escape_text};
use tokio_util::sync::CancellationToken;

use super::add::{config_of, named};
use crate::added::{Added, AddedCapability};
use crate::agent::{AgentHandler, CapabilityHandler};
use crate::app::App;
use crate::args::Run;
use crate::capabilities::{Target, load_module};
use crate::error::CliError;
use crate::run::Runs;
use crate::run::resolver::Resolver;
use crate::stdio;

/// Serves the capability on stdin and stdout.
///
/// # Errors
/// Returns why it cannot run here.
pub(crate) async fn run(
    app: Arc<App>,
    options: &Run,
    stop: CancellationToken,
) -> Result<ExitCode, CliError> {
    let added = find(Added::read(app.project())?, &options.name)?;
    let again = format!("Run `pml add {}@{}`.", added.name, added.version);
    let id = id_of(&added)?;
    let pinned = app.lockfile.capabilities(&id)?;
    if !pinned.iter().any(|known| known.integrity == added.integrity) {
        let message = format!(
            "`{}` is in this project's `.pml/deps.json`, but you have not allowed it here",
            escape_text(&added.name)
        );
        return Err(CliError::from_code(ErrorCode::ApprovalDenied, message).with_hint(again));
    }
    let Some(module) = load_module(app.records(), added.integrity) else {
        let message = format!("the program of `{}` is no longer here", escape_text(&added.name));
        return Err(CliError::from_code(ErrorCode::NotFound, message).with_hint(again));
    };
    let described = module.descriptor().ok_or_else(|| {
        CliError::from_code(ErrorCode::Internal, "the stored program has no description")
    })?;
    let runs = Runs::with_posted_questions(Arc::clone(&app));
    let mut resolver = Resolver::new(&app, true, &stop);
    let (runs, config) = match resolver.find_called(&id).await {
        Ok(Target::Capability(capability)) => {
            (runs.without_gateway(), config_of(&capability, &added))
        }
        // It calls a tool that only the gateway has.
        Ok(_) => (runs, serde_json::to_value(&added).unwrap_or_default()),
        Err(error) if error.error_code == ErrorCode::ServerToolsOffline => {
            (runs, serde_json::to_value(&added).unwrap_or_default())
        }
        Err(error) => return Err(error.into()),
    };
    let runs = Arc::new(runs);
    let handler =
        CapabilityHandler::new(AgentHandler::new(Arc::clone(&runs)), id, described, config);
    Box::pin(stdio::serve_tools(handler, runs, stop)).await.map_err(|error| {
        CliError::failed(format!("the connection to the agent failed: {error:#}"))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Finds a capability by the name of its server, or by its own.
fn find(added: Added, name: &str) -> Result<AddedCapability, CliError> {
    if let Some(known) = added.0.get(name) {
        return Ok(known.clone());
    }
    let shown = escape_text(name);
    let missing = || {
        CliError::from_code(ErrorCode::NotFound, format!("`{shown}` was not added here"))
            .with_hint(format!("`pml add {shown}` adds it; `pml list` shows what was added."))
    };
    let wanted = named(name).map_err(|_| missing())?;
    let mut found = added.0.into_values().filter(|known| {
        let full = known.name.parse::<Fqdn>();
        full.is_ok_and(|full| wanted.can_be(&full.pinned(known.integrity.short())))
            && wanted.version().is_none_or(|version| version == known.version)
    });
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(missing()),
        (Some(_), Some(_)) => {
            let message = format!("several capabilities that were added here are named `{shown}`");
            Err(CliError::cannot_run(message)
                .with_hint("Write the full name, or that of a server."))
        }
    }
}

/// Returns the id under which exactly this version is called.
fn id_of(added: &AddedCapability) -> Result<ToolId, CliError> {
    let invalid = |error: &dyn std::fmt::Display| {
        CliError::from_code(ErrorCode::ConfigInvalid, format!("`.pml/deps.json`: {error}"))
    };
    let name: Fqdn = added.name.parse().map_err(|error| invalid(&error))?;
    let id = name.full_tool().ok_or_else(|| invalid(&"a name without an action"))?;
    id.at(&added.version).map_err(|error| invalid(&error))
}
