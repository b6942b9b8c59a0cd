//! `pml stdio`: an MCP server on stdin and stdout.
//!
//! The only writer to stdout is the one in `lines`; logs go to stderr.

mod lines;

use std::sync::Arc;

use rmcp::{ServerHandler, ServiceExt as _};
use tokio_util::sync::CancellationToken;

use crate::agent::AgentHandler;
use crate::app::App;
use crate::run::Runs;

/// Serves PML's own tools on stdin and stdout until stdin ends or `stop` is cancelled.
///
/// # Errors
/// As [`serve_tools`].
pub(crate) async fn serve(app: Arc<App>, stop: CancellationToken) -> anyhow::Result<()> {
    let runs = Arc::new(Runs::with_posted_questions(Arc::clone(&app)));
    // Also what an earlier `pml` could not.
    app.tell_gateway();
    let handler = AgentHandler::exposing(Arc::clone(&runs));
    // Boxed: its future is large, and would make that of every caller as large.
    let served = Box::pin(serve_tools(handler, runs, stop)).await;
    app.finish_telling().await;
    served
}

/// Serves the tools of a handler on stdin and stdout until stdin ends or `stop` is cancelled, then ends its runs.
///
/// # Errors
/// Returns an error if the handshake fails, unless stdin was closed.
pub(crate) async fn serve_tools(
    handler: impl ServerHandler,
    runs: Arc<Runs>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let served = async {
        let (transport, mut written) = lines::connect(tokio::io::stdin(), tokio::io::stdout());
        let greeted = tokio::select! {
            greeted = handler.serve(transport) => greeted,
            // If stdout is closed, the client is gone, whether or not stdin has ended.
            _ = &mut written => return Ok(()),
        };
        match greeted {
            Ok(service) => {
                tokio::select! {
                    _ = service.waiting() => {
                        // Wait until the last answers are written to stdout.
                        let _ = written.await;
                    }
                    _ = &mut written => {}
                }
                Ok(())
            }
            // A client that disconnects before the handshake is not an error.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(anyhow::Error::new(error)),
        }
    };
    let ended = tokio::select! {
        ended = served => ended,
        () = stop.cancelled() => Ok(()),
    };
    // In every case, also after an error: no server may outlive the connection.
    runs.shut_down().await;
    ended
}
