//! The HTTP/1.1 connections of the page.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::requests::Requests;
use crate::connections;

/// The maximum number of connections at the same time.
const CONNECTIONS_LIMIT: usize = 32;

/// The time limit for the head of a request, and so for an idle connection.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// The time limit of a connection.
const CONNECTION_TIME: Duration = Duration::from_secs(60);

/// Serves connections until `stop`.
pub(super) async fn serve(listener: TcpListener, requests: Arc<Requests>, stop: CancellationToken) {
    connections::accept(listener, CONNECTIONS_LIMIT, stop, move |stream| {
        let requests = Arc::clone(&requests);
        async move {
            let answer = service_fn(move |request: hyper::Request<Incoming>| {
                let requests = Arc::clone(&requests);
                async move { Ok::<_, Infallible>(requests.answer(request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .serve_connection(TokioIo::new(stream), answer);
            // An error is the browser's own: it closed the connection, or did not send HTTP.
            let _ = tokio::time::timeout(CONNECTION_TIME, connection).await;
        }
    })
    .await;
}
