//! `pml serve`.

use std::process::ExitCode;
use std::sync::Arc;

use protocol::{ErrorCode, escape_text};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::terminal::say;
use crate::app::App;
use crate::args::Serve;
use crate::error::CliError;
use crate::serve::{ServeError, Server};

/// The port, if none is chosen.
const PORT: u16 = 3003;

/// Serves MCP over HTTP until a signal.
///
/// # Errors
/// Returns why it cannot start.
pub(crate) async fn serve(
    app: Arc<App>,
    options: &Serve,
    stop: CancellationToken,
) -> Result<ExitCode, CliError> {
    let workspace = app.workspace().to_owned();
    let port = options.port.or_else(|| app.serve_port()).unwrap_or(PORT);
    let server = Server::open(app, port, stop).await.map_err(|error| match &error {
        ServeError::Token(_) => CliError::from_code(ErrorCode::ConfigInvalid, error.to_string()),
        ServeError::Port { .. } => CliError::unavailable(error.to_string())
            .with_hint("`--port` chooses another port; with 0, `pml` prints one that is free."),
    })?;
    let token = workspace.join(".pml/serve-token");
    let text = match options.json {
        true => format!("{}\n", json!({ "url": server.url, "token_file": token })),
        false => format!(
            "MCP for `{}`\n  at     {}\n  token  in {}\n",
            escape_text(&workspace.display().to_string()),
            server.url,
            escape_text(&token.display().to_string()),
        ),
    };
    // If nobody reads it, the server is of use all the same.
    let _ = say(&text);
    server.run().await;
    Ok(ExitCode::SUCCESS)
}
