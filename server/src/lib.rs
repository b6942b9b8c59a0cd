//! The PML gateway.
//!
//! It authenticates a caller, analyses the submitted program before anything
//! runs, resolves every tool in the caller's scope, and either runs the program
//! in a sealed sandbox or hands it to the caller's machine. It is also the
//! registry at `/mcp/<fqdn>`.
//!
//! It never runs a program that it did not parse, never calls a tool that the
//! analysis did not declare, and never answers with another tenant's rows. SQL
//! lives in `registry`, the analysis in `analysis`, containment in `sandbox`.

pub mod analyser;
pub mod auth;
pub mod calls;
pub mod capabilities;
pub mod catalog;
pub mod commands;
pub mod config;
pub mod create;
pub mod database;
pub mod discover;
pub mod embedded_postgres;
pub mod error;
pub mod execute;
pub mod http;
pub mod limits;
pub mod master_key;
pub mod proxy;
pub mod publish;
pub mod sessions;
pub mod state;
pub mod telemetry;
pub mod tokens;
pub mod tools;
pub mod turns;
pub mod upstreams;

use std::net::SocketAddr;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::Serve;
use crate::state::SharedGateway;

/// How long requests in flight may take to end once the gateway is told to stop.
const GRACE: Duration = Duration::from_secs(20);

/// Serves until `shutdown` is cancelled, then lets requests in flight end.
///
/// # Errors
/// Returns an error when the listener fails.
pub async fn serve(
    gateway: SharedGateway,
    serve: &Serve,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    // Requests in flight get their grace before their work is cancelled.
    let abandon = CancellationToken::new();
    let router = crate::http::router(gateway, serve, abandon.clone());
    // Small JSON answers must not wait for the next packet.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(error = %error, "Could not set TCP_NODELAY");
        }
    });
    let stop = shutdown.clone();
    // The address of the peer goes along with each request.
    let router = router.into_make_service_with_connect_info::<SocketAddr>();
    let server =
        axum::serve(listener, router).with_graceful_shutdown(async move { stop.cancelled().await });
    let deadline = async {
        shutdown.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        ended = std::future::IntoFuture::into_future(server) => ended,
        () = deadline => {
            abandon.cancel();
            tracing::warn!("Requests were still running after {} s; stopping anyway", GRACE.as_secs());
            Ok(())
        }
    }
}
