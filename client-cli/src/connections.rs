//! Accepts the connections of a listener, up to a limit.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Has `serve` serve each connection, at most `limit` at the same time, until `stop`. Connections that are open then are
/// closed.
pub(crate) async fn accept<F>(
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
