//! What the host does with every child, whatever it runs: reads its socket, its seal and its CPU clock.

use std::io;
use std::time::{Duration, Instant};

use tokio::net::UnixStream;

use crate::frame::{self, FromChild, Inbox};
use crate::layer::LayerReport;
use crate::limits::CPU_GRACE;

/// How long a child may take to start and seal itself.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// Longest `ready` frame.
const READY_BYTES: usize = 64 * 1024;

/// Waits for more bytes; an error means that the child closed its end.
pub(crate) async fn receive(stream: &UnixStream, inbox: &mut Inbox) -> io::Result<()> {
    loop {
        stream.readable().await?;
        match try_receive(stream, inbox) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
}

/// Takes the bytes that are there; an error other than `WouldBlock` means that the child closed its end.
pub(crate) fn try_receive(stream: &UnixStream, inbox: &mut Inbox) -> io::Result<()> {
    let tail = inbox.tail();
    tail.reserve(64 * 1024);
    match stream.try_read_buf(tail) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads a child's first frame: its seal holds, or it says why not.
pub(crate) async fn await_ready(
    stream: &UnixStream,
    inbox: &mut Inbox,
) -> Result<Vec<LayerReport>, String> {
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        if let Some(body) = inbox.next(READY_BYTES)? {
            return match frame::read_from_child(body)? {
                FromChild::Ready { layers } => Ok(layers),
                FromChild::Unavailable { message } => Err(message),
                _ => Err("the child spoke before its seal was told".to_owned()),
            };
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, receive(stream, inbox)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err("the child died before it was sealed".to_owned()),
            Err(_) => return Err("the child did not seal itself in time".to_owned()),
        }
    }
}

/// Returns once `limit` and a little grace has been used. Sleeps as long as it cannot have been.
pub(crate) async fn cpu_exhausted(
    cpu: impl Fn() -> Option<Duration>,
    before: Duration,
    limit: Duration,
) {
    loop {
        // A child that cannot be measured has died, which the socket tells.
        let Some(now) = cpu() else { return std::future::pending().await };
        let left = (limit + CPU_GRACE).saturating_sub(now.saturating_sub(before));
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}
