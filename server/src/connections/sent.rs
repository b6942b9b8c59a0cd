//! The bodies of requests: they have a minimum rate, and an unread rest does not break the next request.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::live::Live;

/// How long a body may take before the minimum rate applies.
const BODY_GRACE: Duration = Duration::from_secs(10);
/// The slowest pace of a body after that, from its beginning, in bytes a second.
const BODY_PACE: u64 = 1_024;
/// The largest rest of a body that is read to keep the connection.
const REST: u64 = 512 * 1024;
/// The total time limit.
const REST_TIME: Duration = Duration::from_secs(1);

/// A body came too slowly.
#[derive(Debug, thiserror::Error)]
#[error("the body arrives too slowly")]
pub(crate) struct TooSlow;

/// The body of a request, which has to come at some pace.
pub(super) struct SentBody {
    /// It is there until this is dropped.
    body: Option<Incoming>,
    live: Arc<Live>,
    since: Instant,
    bytes: u64,
    /// Whether the connection still considers it in progress.
    is_counted: bool,
    rest: Rest,
}

impl SentBody {
    /// Wraps the body of a request that the connection considers in progress. If it is dropped before its end, the
    /// unread part is passed to `rest`.
    pub(super) fn new(body: Incoming, live: Arc<Live>, rest: Rest) -> Self {
        Self { body: Some(body), live, since: Instant::now(), bytes: 0, is_counted: true, rest }
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
        let Some(body) = self.body.as_mut() else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        let frame = match frame {
            Some(Ok(frame)) => frame,
            ended => {
                self.has_ended();
                return Poll::Ready(ended.map(|end| end.map_err(Into::into)));
            }
        };
        self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        if self.is_end_stream() {
            self.has_ended();
        } else if is_too_slow(self.since.elapsed(), self.bytes) {
            return Poll::Ready(Some(Err(TooSlow.into())));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for SentBody {
    fn drop(&mut self) {
        self.has_ended();
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            self.rest.0.lock().unwrap_or_else(PoisonError::into_inner).replace(body);
        }
    }
}

fn is_too_slow(elapsed: Duration, bytes: u64) -> bool {
    elapsed > BODY_GRACE && bytes < elapsed.as_secs() * BODY_PACE
}

/// The unread rest of a request's body after the answer, for example of a request that was refused before its body
/// was read.
///
/// Otherwise `hyper` closes the connection without announcing it, and the client's next request on it would be lost.
#[derive(Clone, Default)]
pub(super) struct Rest(Arc<Mutex<Option<Incoming>>>);

impl Rest {
    /// Reads it to its end if it is short; returns whether the connection can be reused.
    pub(super) async fn read(&self, waits_for_leave: bool) -> bool {
        let left = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut body) = left else { return true };
        if waits_for_leave || body.size_hint().lower() > REST {
            return false;
        }
        let reading = async {
            let mut bytes = 0;
            loop {
                let next = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
                match next {
                    None => return true,
                    Some(Err(_)) => return false,
                    Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, Bytes::len) as u64,
                }
                if bytes > REST {
                    return false;
                }
            }
        };
        tokio::time::timeout(REST_TIME, reading).await.unwrap_or(false)
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
