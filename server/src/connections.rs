//! Accepts connections and serves them; one that sends nothing, or too slowly, is closed.
//!
//! A connection costs a client nothing and the gateway a file descriptor, so there is a limit in total and one per
//! address. At a limit a new connection is still accepted, and the connections that have waited longest without a
//! complete request are closed for it: a client that sends a request is served, however many others only connect.

mod descriptors;
mod live;
mod sent;
mod stream;
mod table;

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
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

pub(crate) use descriptors::raise as raise_descriptors;
pub(crate) use table::Limits;

use live::Times;
pub(crate) use sent::TooSlow;
use sent::{Rest, SentBody};
use stream::{Answer, Watched, Working};
use table::{Seat, Table};

/// The interval of checks for overdue connections.
const SWEEP: Duration = Duration::from_millis(500);
/// How long accepting pauses after a failure that does not concern a single connection, such as `EMFILE`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// The interval of log lines for a repeated failure.
const REMINDER: Duration = Duration::from_secs(60);
/// Marks that the connection ends with this answer.
const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// The largest buffer of a connection in HTTP/1, and so the largest head of a request.
const BUFFER: usize = 64 * 1024;
/// The largest head of a request in HTTP/2.
const HEADER_LIST: u32 = 64 * 1024;
/// Requests at the same time on one connection in HTTP/2. Floods of resets are ended by `h2` itself.
const STREAMS: u32 = 128;
/// The interval of pings on a silent HTTP/2 connection, and the time limit of the pong.
const PING: Duration = Duration::from_secs(20);

/// Serves connections until `shutdown` is cancelled, then until the last of them has ended.
///
/// `exempt` returns whether a peer has no limit per address: proxies, which have many clients behind them.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    exempt: impl Fn(IpAddr) -> bool,
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
            swept.drop_overdue(&Times::DEFAULT, Instant::now());
        }
    });
    let mut told: Option<Instant> = None;
    while let Some(accepted) = shutdown.run_until_cancelled(listener.accept()).await {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => {
                if told.is_none_or(|told| told.elapsed() >= REMINDER) {
                    told = Some(Instant::now());
                    tracing::error!(error = %error, "Could not accept connections");
                }
                // The descriptors may be held by idle connections.
                table.make_room();
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let address = peer.ip().to_canonical();
        let counted = (!exempt(address)).then(|| crate::admission::limits::network(address));
        if let Some(seat) = table.admit(counted) {
            let builder = Arc::clone(&builder);
            tasks.spawn(serve_one(stream, peer, seat, router.clone(), builder, shutdown.clone()));
        }
        table.closed_enough().await;
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
    sweeper.abort();
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // All connection timeouts are implemented in one place: here.
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

/// Serves one connection until it ends or has to go.
async fn serve_one(
    stream: TcpStream,
    peer: SocketAddr,
    seat: Seat,
    router: Router,
    builder: Arc<Builder<TokioExecutor>>,
    shutdown: CancellationToken,
) {
    // Small JSON answers must not wait for the next packet.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(error = %error, "Could not set TCP_NODELAY");
    }
    let live = Arc::clone(&seat.live);
    let service = service_fn(|request: Request<Incoming>| {
        let (live, router) = (Arc::clone(&live), router.clone());
        async move {
            let is_multiplexed = request.version() == Version::HTTP_2;
            let has_body = !hyper::body::Body::is_end_stream(request.body());
            if !live.begins(is_multiplexed, has_body) {
                // The connection is about to be dropped, and this with it.
                std::future::pending::<()>().await;
            }
            let working = Working(Arc::clone(&live));
            let waits_for_leave = request.headers().contains_key(header::EXPECT);
            let rest = Rest::default();
            let mut request = request.map(|body| match has_body {
                true => Body::new(SentBody::new(body, live, rest.clone())),
                false => Body::new(body),
            });
            // The peer's address is attached to each request.
            request.extensions_mut().insert(ConnectInfo(peer));
            let Ok(mut response) = router.oneshot(request).await;
            // In HTTP/2 a body has a stream of its own.
            if has_body && !is_multiplexed && !rest.read(waits_for_leave).await {
                response.headers_mut().insert(header::CONNECTION, CLOSE);
            }
            Ok::<_, Infallible>(response.map(|body| Answer { body, _working: working }))
        }
    });
    let io = TokioIo::new(Watched::new(stream, Arc::clone(&seat.live)));
    let mut connection = std::pin::pin!(builder.serve_connection(io, service));
    let ended = async {
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    tokio::select! {
        ended = ended => {
            if let Err(error) = ended {
                tracing::trace!(error = %error, "A connection ended");
            }
        }
        () = seat.live.doomed.notified() => {}
    }
}

/// Returns whether a failure to accept is of the connection that was to be accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
