//! The bodies of requests: they must arrive at a minimum rate, and an unread rest does not break the next request.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::state::ConnectionState;

/// The time after which the minimum rate applies.
const BODY_GRACE: Duration = Duration::from_secs(10);
/// The minimum average rate of a body, in bytes per second.
const MIN_RATE: u64 = 1_024;
/// The largest unread rest of a body that is read to keep the connection open.
const REST: u64 = 512 * 1024;
/// The time limit for reading it.
const REST_TIME: Duration = Duration::from_secs(1);

/// The error for a body below the minimum rate.
#[derive(Debug, thiserror::Error)]
#[error("the body arrives too slowly")]
pub(crate) struct TooSlow;

/// The body of a request, which must arrive at a minimum rate.
pub(super) struct RequestBody {
    /// `None` only while this is dropped.
    body: Option<Incoming>,
    state: Arc<ConnectionState>,
    since: Instant,
    bytes: u64,
    /// Whether the connection's state still counts the body as arriving.
    is_counted: bool,
    rest: UnreadBody,
}

impl RequestBody {
    /// Wraps the body of a request that the connection's state counts as arriving. If it is dropped before its end, the
    /// unread part is moved to `rest`.
    pub(super) fn new(body: Incoming, state: Arc<ConnectionState>, rest: UnreadBody) -> Self {
        Self { body: Some(body), state, since: Instant::now(), bytes: 0, is_counted: true, rest }
    }

    /// Notes the end of the body, once.
    fn on_end(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            self.state.on_body_end();
        }
    }
}

impl Body for RequestBody {
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
            // The end of the body, or a broken connection.
            ended => {
                self.on_end();
                return Poll::Ready(ended.map(|end| end.map_err(Into::into)));
            }
        };
        self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        // If the length is known, readers stop at the last frame, without polling for the end.
        if self.is_end_stream() {
            self.on_end();
        } else if is_too_slow(self.since.elapsed(), self.bytes) {
            // Noticed only when a frame arrives; the timeout layer ends a silent body.
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

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.on_end();
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            self.rest.0.lock().unwrap_or_else(PoisonError::into_inner).replace(body);
        }
    }
}

fn is_too_slow(elapsed: Duration, bytes: u64) -> bool {
    elapsed > BODY_GRACE && bytes < elapsed.as_secs() * MIN_RATE
}

/// The unread rest of a request's body, for example of a request that was refused before its body was read.
///
/// It is read before the answer is sent. Otherwise `hyper` would close the connection without announcing it, and the
/// client's next request on it would be lost.
#[derive(Clone, Default)]
pub(super) struct UnreadBody(Arc<Mutex<Option<Incoming>>>);

impl UnreadBody {
    /// Reads a short rest to its end; returns whether the connection can be reused. A client that sent
    /// `Expect: 100-continue` may never send the body, so it is not waited for.
    pub(super) async fn read(&self, expects_continue: bool) -> bool {
        // Taken out, because the lock must not be held while the rest is awaited.
        let unread = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut body) = unread else { return true };
        // A rest that is declared too large is not even begun.
        if expects_continue || body.size_hint().lower() > REST {
            return false;
        }
        let reading = async {
            // Counted as well, because the length of a chunked body is not known in advance.
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
    fn a_body_has_a_minimum_rate_after_10_s() {
        assert!(!is_too_slow(Duration::from_secs(9), 1));
        assert!(is_too_slow(Duration::from_secs(11), 11));
        assert!(!is_too_slow(Duration::from_secs(11), 11 * 1_024));
        assert!(is_too_slow(Duration::from_secs(60), 30 * 1_024));
    }
}
