//! Accepts and serves connections, and closes those that send nothing or too slowly.
//!
//! A connection costs a client almost nothing, but it costs the gateway a file descriptor. So the number of connections
//! is limited, in total and per address. At a limit, a new connection is still accepted, and the connections that have
//! waited longest without a complete request are closed for it. So a client that sends requests is served, however many
//! others only connect.

mod descriptors;
mod request_body;
mod state;
mod stream;
mod table;
pub(crate) mod tls;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderValue, Request, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

pub(crate) use descriptors::raise as raise_descriptors;
pub(crate) use table::Limits;

pub(crate) use request_body::TooSlow;
use request_body::{RequestBody, UnreadBody};
use state::Timeouts;
use stream::{Answer, ObservedStream, RequestGuard};
use table::{Entry, Table};
use tls::{Begun, Tls};

/// The interval of checks for overdue connections.
const SWEEP: Duration = Duration::from_millis(500);
/// The pause after a failure to accept that is not caused by the connection, such as `EMFILE`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// The minimum interval of log lines for a repeated failure.
const REMINDER: Duration = Duration::from_secs(60);
/// The value of the header `Connection` that announces that the connection closes after the answer.
const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// The largest read buffer of an HTTP/1 connection, and so the largest head of a request.
const BUFFER: usize = 64 * 1024;
/// The largest head of an HTTP/2 request.
const HEADER_LIST: u32 = 64 * 1024;
/// The maximum number of concurrent requests on an HTTP/2 connection. `h2` itself stops floods of resets.
const STREAMS: u32 = 128;
/// The interval of pings on a silent HTTP/2 connection, and the time limit of the pong.
const PING: Duration = Duration::from_secs(20);

/// Serves connections until `shutdown` is cancelled, then waits until the last of them has ended.
///
/// `exempt` returns whether a peer is exempt from the limit per address, as proxies with many clients are. With `tls`,
/// connections are encrypted.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    exempt: impl Fn(IpAddr) -> bool,
    tls: Option<Arc<Tls>>,
    shutdown: CancellationToken,
) {
    let table = Arc::new(Table::new(limits));
    let builder = Arc::new(builder());
    let tasks = TaskTracker::new();
    let swept = Arc::clone(&table);
    let sweeper = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(SWEEP);
        loop {
            ticks.tick().await;
            swept.drop_overdue(&Timeouts::DEFAULT, Instant::now());
        }
    });
    let mut logged: Option<Instant> = None;
    while let Some(accepted) = shutdown.run_until_cancelled(listener.accept()).await {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if concerns_one_connection(&error) => continue,
            Err(error) => {
                if logged.is_none_or(|at| at.elapsed() >= REMINDER) {
                    logged = Some(Instant::now());
                    tracing::error!(error = %error, "Could not accept connections");
                }
                // The descriptors may be held by idle connections.
                table.make_room();
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let address = peer.ip().to_canonical();
        // An IPv6 subscriber has a whole network of addresses, which counts as one.
        let counted = (!exempt(address)).then(|| crate::admission::limits::network(address));
        // Otherwise, all connections that could make room are processing requests, and the new one
        // is closed by dropping it.
        if let Some(entry) = table.admit(counted) {
            let served = Served {
                peer,
                entry,
                router: router.clone(),
                builder: Arc::clone(&builder),
                shutdown: shutdown.clone(),
            };
            tasks.spawn(serve_one(stream, tls.clone(), served));
        }
        // Connections that are being closed still hold their descriptors.
        table.wait_for_closing().await;
    }
    // From now on, new connections are refused by the kernel, and a restarted gateway can bind the port.
    drop(listener);
    tasks.close();
    tasks.wait().await;
    sweeper.abort();
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // hyper's timeouts are off: `Timeouts` covers all of them.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_LIST)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}

/// What a connection is served with.
struct Served {
    peer: SocketAddr,
    entry: Entry,
    router: Router,
    builder: Arc<Builder<TokioExecutor>>,
    shutdown: CancellationToken,
}

/// Serves one connection until it ends or is closed.
async fn serve_one(stream: TcpStream, tls: Option<Arc<Tls>>, mut served: Served) {
    // With Nagle's algorithm, small JSON answers could be delayed.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(error = %error, "Could not set TCP_NODELAY");
    }
    let state = &served.entry.state;
    let Some(tls) = tls else {
        let stream = ObservedStream::new(stream, Arc::clone(state));
        return serve_stream(stream, served).await;
    };
    let begun = tokio::select! {
        begun = tls.begin(stream, state) => begun,
        // The table also closes connections in the middle of a handshake.
        () = state.close.notified() => return,
        () = served.shutdown.cancelled() => return,
    };
    match begun {
        Ok(Begun::Encrypted(stream)) => serve_stream(stream, served).await,
        Ok(Begun::Plain(stream)) => {
            served.router = tls::plain_router();
            serve_stream(stream, served).await;
        }
        // The client may not trust the certificate, or may not speak TLS at all.
        Err(error) => tracing::debug!(error = %error, "A TLS handshake failed"),
    }
}

/// Serves requests on a stream until it ends or is closed.
async fn serve_stream<S>(stream: S, served: Served)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Served { peer, entry, router, builder, shutdown } = served;
    let state = Arc::clone(&entry.state);
    let service = service_fn(|request: Request<Incoming>| {
        let (state, router) = (Arc::clone(&state), router.clone());
        async move {
            let is_multiplexed = request.version() == Version::HTTP_2;
            let has_body = !hyper::body::Body::is_end_stream(request.body());
            if !state.on_request(is_multiplexed, has_body) {
                // The connection is about to be dropped, and this future with it.
                std::future::pending::<()>().await;
            }
            // Moves into the body of the answer, so that the request counts until the answer is
            // sent or the client is gone.
            let guard = RequestGuard(Arc::clone(&state));
            let expects_continue = request.headers().contains_key(header::EXPECT);
            let rest = UnreadBody::default();
            let mut request = request.map(|body| match has_body {
                true => Body::new(RequestBody::new(body, state, rest.clone())),
                false => Body::new(body),
            });
            // Rate limits need the peer's address.
            request.extensions_mut().insert(ConnectInfo(peer));
            let Ok(mut response) = router.oneshot(request).await;
            // In HTTP/2, each body has a separate stream, so an unread one does not affect the next request.
            if has_body && !is_multiplexed && !rest.read(expects_continue).await {
                response.headers_mut().insert(header::CONNECTION, CLOSE);
            }
            Ok::<_, Infallible>(response.map(|body| Answer { body, _guard: guard }))
        }
    });
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = async {
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = shutdown.cancelled() => {
                // Refuses further requests on this connection, and answers those in progress.
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    tokio::select! {
        ended = ended => {
            // Clients disconnect all the time, which is not worth a line at the usual levels.
            if let Err(error) = ended {
                tracing::trace!(error = %error, "A connection ended");
            }
        }
        // Dropping `connection` closes it at once. The table does this only while no request is
        // processed, or when the client does not read.
        () = entry.state.close.notified() => {}
    }
}

/// Returns whether a failure to accept concerns only the connection that was to be accepted.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
