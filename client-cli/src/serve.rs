//! `pml serve`: an MCP server on 127.0.0.1, over Streamable HTTP.
//!
//! Every program of this machine, and every page in its browser, can open a connection. So a request needs the token in
//! `.pml/serve-token`, which only the user can read, and names this address; pages of other sites are refused.

mod requests;
mod token;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use execution::connections::{self, HttpLimits};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::requests::Requests;
use self::token::Token;
use crate::agent::AgentHandler;
use crate::app::App;
use crate::run::Runs;

pub(crate) use self::token::TokenError;

/// The limits of the server. Each client keeps a few connections: one listens for messages, as long as it likes.
const LIMITS: HttpLimits = HttpLimits {
    connections: 256,
    head: Duration::from_secs(30),
    connection: Duration::from_secs(24 * 60 * 60),
};

/// A server that accepts connections.
pub(crate) struct Server {
    listener: TcpListener,
    requests: Arc<Requests>,
    runs: Arc<Runs>,
    stop: CancellationToken,
    /// The address for MCP clients.
    pub(crate) url: String,
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The token cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The port cannot be used.
    #[error("cannot listen on 127.0.0.1:{port}: {reason}")]
    Port {
        /// The port.
        port: u16,
        /// The system's error.
        reason: std::io::Error,
    },
}

impl Server {
    /// Listens on a port of 127.0.0.1; 0 for any free one. Reads the token, or creates it.
    ///
    /// # Errors
    /// Returns [`ServeError`] if the token or the port cannot be used. Nothing was started then.
    pub(crate) async fn open(
        app: Arc<App>,
        port: u16,
        stop: CancellationToken,
    ) -> Result<Self, ServeError> {
        let failed = |reason| ServeError::Port { port, reason };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let token = Token::open(app.project())?;
        let runs = Arc::new(Runs::with_posted_questions(app));
        // Also what an earlier `pml` could not.
        runs.app.tell_gateway();
        let handler = AgentHandler::exposing(Arc::clone(&runs));
        let requests = Arc::new(Requests::new(handler, token, stop.clone()));
        let url = format!("http://127.0.0.1:{port}{}", requests::PATH);
        Ok(Self { listener, requests, runs, stop, url })
    }

    /// Serves until `stop`, then stops what the programs started.
    pub(crate) async fn run(self) {
        let Self { listener, requests, runs, stop, .. } = self;
        connections::serve_http(listener, LIMITS, stop, move |request| {
            let requests = Arc::clone(&requests);
            async move { requests.answer(request).await }
        })
        .await;
        runs.shut_down().await;
        runs.app.finish_telling().await;
    }
}
