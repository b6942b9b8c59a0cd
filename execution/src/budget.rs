//! Memory for untrusted input: reserved while it arrives, while it is parsed and while the result is in use.

use bytes::Bytes;
use futures::{Stream, TryStreamExt as _};

/// Texts up to this size, in bytes, are read without a reservation.
pub const UNBUDGETED: usize = 64 * 1024;

/// A limit on memory.
pub trait Budget: Clone + Send + Sync + 'static {
    /// A reservation; dropping it frees the memory.
    type Held: Send + Sync + 'static;
    /// Why nothing could be reserved.
    type Error: Send;

    /// Reserves memory for a text of this many bytes before it arrives.
    ///
    /// # Errors
    /// Returns an error when no memory becomes free in time.
    fn arriving(
        &self,
        bytes: usize,
    ) -> impl Future<Output = Result<Self::Held, Self::Error>> + Send;

    /// Reserves memory for the parsed form of an MCP message.
    ///
    /// # Errors
    /// Returns an error when no memory becomes free in time, and for a message that exceeds the limit by itself.
    fn parsed(
        &self,
        message: &[u8],
    ) -> impl Future<Output = Result<Self::Held, Self::Error>> + Send;

    /// Frees what a reservation holds beyond `bytes`.
    fn shrink(held: &mut Self::Held, bytes: usize);
}

/// A fixed limit on the values and names in one message, for a program with a single user.
#[derive(Debug, Clone, Copy)]
pub struct Values {
    /// The maximum number of values and names.
    pub most: usize,
}

impl Budget for Values {
    type Held = ();
    type Error = ();

    async fn arriving(&self, _bytes: usize) -> Result<(), ()> {
        Ok(())
    }

    async fn parsed(&self, message: &[u8]) -> Result<(), ()> {
        if protocol::json::values(message) > self.most { Err(()) } else { Ok(()) }
    }

    fn shrink((): &mut (), _bytes: usize) {}
}

/// Why a text was not collected.
#[derive(Debug)]
pub enum NotKept<R, E> {
    /// It exceeds the size limit.
    TooLarge,
    /// No memory became free in time.
    NoRoom(R),
    /// The stream ended with an error.
    Cut(E),
}

/// A text and its reservation.
struct Kept<H> {
    bytes: Vec<u8>,
    _held: H,
}

impl<H> AsRef<[u8]> for Kept<H> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Collects at most `most` bytes. The reservation is freed when the last clone of the result is dropped.
///
/// `declared` is the length announced by the sender. It only decides how much is reserved at first. When the text turns
/// out to be too large, the collected part is dropped at once. With `drains`, the rest is read and discarded, so that a
/// peer that does not read before it has written everything sees the response.
///
/// # Errors
/// Returns why the text was not collected.
pub async fn gather<B: Budget, E>(
    budget: &B,
    pieces: impl Stream<Item = Result<Bytes, E>>,
    declared: Option<usize>,
    most: usize,
    drains: bool,
) -> Result<Bytes, NotKept<B::Error, E>> {
    let mut pieces = std::pin::pin!(pieces);
    let mut is_too_large = declared.is_some_and(|size| size > most);
    let budgeted = declared.filter(|size| !is_too_large && *size > UNBUDGETED);
    let mut held = match budgeted {
        Some(size) => Some(budget.arriving(size).await.map_err(NotKept::NoRoom)?),
        None => None,
    };
    let mut bytes = Vec::new();
    loop {
        if is_too_large && !drains {
            return Err(NotKept::TooLarge);
        }
        let piece = match pieces.try_next().await {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            // The outcome is already known, so it does not matter how the rest ends.
            Err(_) if is_too_large => break,
            Err(error) => return Err(NotKept::Cut(error)),
        };
        let size = bytes.len() + piece.len();
        if is_too_large || size > most {
            (is_too_large, bytes, held) = (true, Vec::new(), None);
            continue;
        }
        if held.is_none() && size > UNBUDGETED {
            // The sender announced no length, or a small one, so the text may grow to the limit.
            // The excess is freed at the end.
            held = Some(budget.arriving(most).await.map_err(NotKept::NoRoom)?);
        }
        bytes.extend_from_slice(&piece);
    }
    if is_too_large {
        return Err(NotKept::TooLarge);
    }
    Ok(match held {
        None => bytes.into(),
        Some(mut held) => {
            B::shrink(&mut held, bytes.len());
            Bytes::from_owner(Kept { bytes, _held: held })
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream;

    use super::*;

    /// Counts the reserved bytes.
    #[derive(Clone, Default)]
    struct Counted(Arc<AtomicUsize>);

    struct Taken(Counted, usize);

    impl Drop for Taken {
        fn drop(&mut self) {
            self.0.0.fetch_sub(self.1, Ordering::SeqCst);
        }
    }

    impl Budget for Counted {
        type Held = Taken;
        type Error = ();

        async fn arriving(&self, bytes: usize) -> Result<Taken, ()> {
            self.0.fetch_add(bytes, Ordering::SeqCst);
            Ok(Taken(self.clone(), bytes))
        }

        async fn parsed(&self, message: &[u8]) -> Result<Taken, ()> {
            self.arriving(message.len()).await
        }

        fn shrink(held: &mut Taken, bytes: usize) {
            let spare = held.1.saturating_sub(bytes);
            held.1 -= spare;
            held.0.0.fetch_sub(spare, Ordering::SeqCst);
        }
    }

    fn pieces(count: usize) -> impl Stream<Item = Result<Bytes, ()>> {
        stream::iter((0..count).map(|_| Ok(Bytes::from_static(&[b'a'; 1024]))))
    }

    #[tokio::test]
    async fn memory_is_reserved_as_long_as_the_bytes_live() {
        let budget = Counted::default();
        let taken = || budget.0.load(Ordering::SeqCst);
        let (kib, most) = (1024, 1024 * 1024);
        let small = gather(&budget, pieces(64), None, most, false).await.unwrap();
        assert_eq!((small.len(), taken()), (64 * kib, 0));
        for declared in [None, Some(100 * kib)] {
            let large = gather(&budget, pieces(100), declared, most, false).await.unwrap();
            assert_eq!(taken(), 100 * kib);
            let copy = large.clone();
            drop(large);
            assert_eq!((copy.len(), taken()), (100 * kib, 100 * kib));
        }
        assert_eq!(taken(), 0);
    }

    #[tokio::test]
    async fn a_text_that_is_too_large_reserves_nothing() {
        let budget = Counted::default();
        for (declared, drains) in [(None, false), (None, true), (Some(200 * 1024), true)] {
            let refused = gather(&budget, pieces(200), declared, 100 * 1024, drains).await;
            assert!(matches!(refused, Err(NotKept::TooLarge)));
        }
        assert_eq!(budget.0.load(Ordering::SeqCst), 0);
    }
}
