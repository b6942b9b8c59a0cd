//! Accepts the connections of a listener, up to a limit.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Has `serve` serve each connection, at most `limit` at the same time, until `stop`. Connections that are open then are
/// closed.
pub async fn accept<F>(
    listener: TcpListener,
    limit: usize,
    stop: CancellationToken,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(limit));
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = stop.cancelled() => return,
        };
        let Ok(place) = place else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, _)) = accepted else {
            // Without a file descriptor, for example, the next attempt would fail at once.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (connection, stop) = (serve(stream), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = connection => {}
                () = stop.cancelled() => {}
            }
            drop(place);
        });
    }
}

/// The limits of an HTTP server.
#[derive(Debug, Clone, Copy)]
pub struct HttpLimits {
    /// The number of connections at the same time.
    pub connections: usize,
    /// The time for the head of a request, and so for an idle connection.
    pub head: Duration,
    /// The time for a connection.
    pub connection: Duration,
}

/// Has `answer` answer each request of HTTP/1.1, until `stop`.
pub async fn serve_http<F, B>(
    listener: TcpListener,
    limits: HttpLimits,
    stop: CancellationToken,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    accept(listener, limits.connections, stop, move |stream| {
        let answer = answer.clone();
        async move {
            let service = service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.head)
                .serve_connection(TokioIo::new(stream), service);
            // An error is the client's own: it closed the connection, or did not send HTTP.
            let _ = tokio::time::timeout(limits.connection, connection).await;
        }
    })
    .await;
}
