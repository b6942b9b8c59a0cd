//! The host's end of a child's socket.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::wire::inbox::Inbox;

/// The minimum size of a read.
const CHUNK: usize = 8 * 1024;

/// The host's end of a child's socket.
///
/// Only input wakes the task: a child that reads makes the socket writable all the time, and that matters only in the
/// rare case that the socket was full.
#[derive(Debug)]
pub(crate) struct ChildSocket {
    socket: AsyncFd<UnixStream>,
}

impl ChildSocket {
    /// Registers a non-blocking socket.
    pub(crate) fn new(socket: UnixStream) -> io::Result<ChildSocket> {
        Ok(ChildSocket { socket: watch(socket, Interest::READABLE)? })
    }

    /// Waits for bytes and reads those that are available; an error means that the child closed its end.
    ///
    /// Cancel safe: a dropped future has taken no bytes.
    pub(crate) async fn receive(&self, inbox: &mut Inbox) -> io::Result<()> {
        loop {
            let mut ready = self.socket.readable().await?;
            let tail = inbox.tail();
            tail.reserve(CHUNK);
            let room = tail.capacity() - tail.len();
            match rustix::io::read(self.socket.get_ref(), spare_capacity(tail)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    // A short read means that the stream is drained.
                    if count < room {
                        ready.clear_ready();
                    }
                    return Ok(());
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends as much as the socket accepts now; returns the number of bytes.
    pub(crate) fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.get_ref().write(bytes)
    }

    /// Waits until the socket accepts more bytes.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        // A duplicate, because epoll accepts each descriptor only once.
        let socket = self.socket.get_ref().try_clone()?;
        let socket = watch(socket, Interest::WRITABLE)?;
        socket.writable().await.map(|_| ())
    }

    /// Sends everything.
    pub(crate) async fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_send(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the socket.
    pub(crate) fn into_socket(self) -> UnixStream {
        self.socket.into_inner()
    }
}

fn watch(socket: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    #[expect(unsafe_code, reason = "the safe form is deprecated")]
    // SAFETY: a stream owns its descriptor and keeps it until it is dropped.
    unsafe {
        AsyncFd::register_with_interest(socket, interest).map_err(io::Error::from)
    }
}
