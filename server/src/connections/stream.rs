//! What a connection reads and writes, watched: its bytes, the bodies of requests, the ends of answers.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body as AxumBody, Bytes};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::live::Live;

/// How long a body may take whatever its pace is.
const BODY_GRACE: Duration = Duration::from_secs(10);
/// The slowest pace of a body after that, from its beginning, in bytes a second.
const BODY_PACE: u64 = 1_024;

/// A stream whose connection hears of what it reads and writes.
pub(super) struct Watched<S> {
    stream: S,
    live: Arc<Live>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, live: Arc<Live>) -> Self {
        Self { stream, live }
    }

    fn wrote<T>(&self, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.live.writes(poll.is_pending());
        poll
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.live.reads();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A body came too slowly.
#[derive(Debug, thiserror::Error)]
#[error("the body comes too slowly")]
pub(crate) struct TooSlow;

/// The body of a request, which has to come at some pace.
pub(super) struct SentBody {
    body: Incoming,
    live: Arc<Live>,
    since: Instant,
    bytes: u64,
    /// Whether the connection still counts it as under way.
    is_counted: bool,
}

impl SentBody {
    /// Takes the body of a request that the connection counts as one with a body.
    pub(super) fn new(body: Incoming, live: Arc<Live>) -> Self {
        Self { body, live, since: Instant::now(), bytes: 0, is_counted: true }
    }

    fn has_ended(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            self.live.has_sent();
        }
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let frame = match frame {
            Some(Ok(frame)) => frame,
            ended => {
                self.has_ended();
                return Poll::Ready(ended.map(|end| end.map_err(Into::into)));
            }
        };
        self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        if self.body.is_end_stream() {
            self.has_ended();
        } else if is_too_slow(self.since.elapsed(), self.bytes) {
            return Poll::Ready(Some(Err(TooSlow.into())));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for SentBody {
    fn drop(&mut self) {
        self.has_ended();
    }
}

fn is_too_slow(elapsed: Duration, bytes: u64) -> bool {
    elapsed > BODY_GRACE && bytes < elapsed.as_secs() * BODY_PACE
}

/// A request that is worked on until this is dropped.
pub(super) struct Working(pub(super) Arc<Live>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.ends();
    }
}

/// The body of an answer. Its request ends with it.
pub(super) struct Answer {
    pub(super) body: AxumBody,
    pub(super) _working: Working,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_a_pace() {
        assert!(!is_too_slow(Duration::from_secs(9), 1));
        assert!(is_too_slow(Duration::from_secs(11), 11));
        assert!(!is_too_slow(Duration::from_secs(11), 11 * 1_024));
        assert!(is_too_slow(Duration::from_secs(60), 30 * 1_024));
    }
}
