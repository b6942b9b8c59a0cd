//! Streams of server-sent events: each event has a size limit and passes the budget before it is parsed.

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use rmcp::model::RequestId;
use sse_stream::{Error, Sse, SseStream};

use super::Slot;
use super::answer::too_large;
use crate::budget::{Budget, UNBUDGETED};

/// The events of a stream.
pub(super) type Events = BoxStream<'static, Result<Sse, Error>>;

/// An event exceeds the size limit, or no memory became free for it.
#[derive(Debug)]
struct TooLarge;

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an event is too large")
    }
}

impl std::error::Error for TooLarge {}

/// Reads events of at most `largest` bytes; memory for a large one is reserved while it arrives.
pub(super) fn bounded<B: Budget, E: std::error::Error + Send + Sync + 'static>(
    budget: B,
    pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    largest: usize,
) -> Events {
    let state = (budget, Box::pin(pieces), EventSize::default(), None);
    let pieces =
        stream::unfold(state, move |(budget, mut pieces, mut size, mut held)| async move {
            let piece = match pieces.next().await? {
                Ok(piece) if size.after(&piece) > largest => Err(cut(TooLarge)),
                Ok(piece) => Ok(piece),
                Err(error) => Err(cut(error)),
            };
            // A reservation ends with its event: the size is small again when the next one begins.
            let is_small = size.bytes <= UNBUDGETED || piece.is_err();
            let piece = match (is_small, &held) {
                (true, _) => {
                    held = None;
                    piece
                }
                (false, Some(_)) => piece,
                // The final size is unknown, so the most that an event may have is reserved.
                (false, None) => match budget.arriving(largest).await {
                    Ok(taken) => {
                        held = Some(taken);
                        piece
                    }
                    Err(_) => Err(cut(TooLarge)),
                },
            };
            Some((piece, (budget, pieces, size, held)))
        });
    SseStream::from_bytes_stream(pieces).boxed()
}

/// An error that ends a stream, ours or the transport's.
#[derive(Debug)]
struct Cut(Box<dyn std::error::Error + Send + Sync>);

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Cut {}

fn cut(error: impl std::error::Error + Send + Sync + 'static) -> Cut {
    Cut(Box::new(error))
}

fn is_too_large(error: &Error) -> bool {
    let Error::Body(cause) = error else { return false };
    // The error of this module arrives as it is, or within the `Cut` that `bounded` made of it.
    cause.is::<TooLarge>() || cause.downcast_ref::<Cut>().is_some_and(|cut| cut.0.is::<TooLarge>())
}

/// Passes on the events that the budget admits. A refused one is replaced by a JSON-RPC error for the request that the
/// stream answers.
pub(super) fn admitted<B: Budget>(
    budget: B,
    events: Events,
    request: Option<RequestId>,
    slot: Slot<B::Held>,
) -> Events {
    let state = (budget, events, request, slot);
    stream::unfold(state, |(budget, mut events, request, slot)| async move {
        let event = events.next().await?;
        let is_too_large = match &event {
            Ok(Sse { data: Some(data), .. }) => match budget.parsed(data.as_bytes()).await {
                Ok(held) => {
                    // A message that answers no request is dropped after parsing, so its reservation ends here.
                    if request.is_some() {
                        slot.keep(held);
                    }
                    false
                }
                Err(_) => true,
            },
            Ok(_) => false,
            Err(error) => is_too_large(error),
        };
        let event = match (is_too_large, &request) {
            (false, _) => event,
            // There is no request to answer, so the stream itself fails.
            (true, None) => Err(Error::Body(Box::new(TooLarge))),
            (true, Some(id)) => {
                let error = serde_json::to_string(&too_large(id.clone()));
                Ok(Sse::default().data(error.unwrap_or_default()))
            }
        };
        Some((event, (budget, events, request, slot)))
    })
    .boxed()
}

/// The size of the event that is arriving.
#[derive(Debug, Default)]
struct EventSize {
    bytes: usize,
    /// The last byte.
    last: u8,
    /// Whether the last byte ended a line.
    at_line: bool,
}

impl EventSize {
    /// Adds a piece, and returns the size of the largest event up to its end.
    fn after(&mut self, piece: &[u8]) -> usize {
        let mut largest = 0;
        for &byte in piece {
            self.bytes += 1;
            largest = largest.max(self.bytes);
            // A line ends with a carriage return, a line feed, or both.
            let is_end = matches!(byte, b'\n' | b'\r');
            let is_second = byte == b'\n' && self.last == b'\r';
            // An empty line ends an event.
            if is_end && self.at_line && !is_second {
                self.bytes = 0;
            }
            self.at_line = is_end;
            self.last = byte;
        }
        largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_ends_with_an_empty_line() {
        let mut size = EventSize::default();
        assert_eq!((size.after(b"data: abc"), size.bytes), (9, 9));
        assert_eq!((size.after(b"\n\ndata"), size.bytes), (11, 4));
        assert_eq!((size.after(b"\r\n\r\nxy"), size.bytes), (7, 3));
        assert_eq!((size.after(b"\r\rz"), size.bytes), (5, 1));
        // A line end that is split between two pieces counts once.
        assert_eq!((size.after(b"\r"), size.bytes), (2, 2));
        assert_eq!((size.after(b"\nabc"), size.bytes), (6, 6));
    }

    /// NX-04: an endless event is cut off, and an event that the budget refuses becomes an error.
    #[tokio::test]
    async fn events_are_budgeted() {
        let budget = crate::budget::Values { most: 3 };
        let text = "data: [1,2,3]\n\ndata: [1,2,3,4,5]\n\n: note\n\ndata: {}\n\n";
        let pieces = stream::iter(
            text.as_bytes()
                .chunks(7)
                .map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)))
                .collect::<Vec<_>>(),
        );
        let events = bounded(budget, pieces, 100);
        let events = admitted(budget, events, Some(RequestId::Number(7)), Slot::default());
        let data: Vec<String> =
            events.filter_map(async |event| event.unwrap().data).collect().await;
        assert_eq!((data[0].as_str(), data[2].as_str()), ("[1,2,3]", "{}"));
        assert!(data[1].contains("\"id\":7") && data[1].contains("-32099"), "{data:?}");
        let endless =
            stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(b"data: a\n")));
        let endless = bounded(budget, endless, 100);
        let mut events = admitted(budget, endless, Some(RequestId::Number(8)), Slot::default());
        let data = events.next().await.unwrap().unwrap().data.unwrap();
        assert!(data.contains("\"id\":8") && data.contains("-32099"), "{data}");
    }
}
