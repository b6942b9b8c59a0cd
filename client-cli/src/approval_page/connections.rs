//! The HTTP/1.1 connections of the page.

use std::sync::Arc;
use std::time::Duration;

use execution::connections::{self, HttpLimits};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::requests::Requests;

/// The limits of the page: a person answers one question after another.
const LIMITS: HttpLimits = HttpLimits {
    connections: 32,
    head: Duration::from_secs(10),
    connection: Duration::from_secs(60),
};

/// Serves connections until `stop`.
pub(super) async fn serve(listener: TcpListener, requests: Arc<Requests>, stop: CancellationToken) {
    connections::serve_http(listener, LIMITS, stop, move |request| {
        let requests = Arc::clone(&requests);
        async move { requests.answer(request).await }
    })
    .await;
}
