//! The child's end of the socket.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::child::exit;
use crate::frame::Inbox;

/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// The child's end of the socket. Every error on it means that the host is gone, and then so are we.
pub(crate) struct Wire {
    socket: OwnedFd,
    inbox: Inbox,
    out: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(socket: OwnedFd) -> Wire {
        Wire { socket, inbox: Inbox::default(), out: Vec::new() }
    }

    /// Returns the buffer of what is to be sent with the next flush.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    pub(crate) fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// Sends everything. Reads meanwhile, so that two full pipes cannot block each other.
    pub(crate) fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.out.len() {
            // Most flushes fit into the socket's buffer at once; only a large one needs the poll.
            if self.out.len() - sent > CHUNK {
                let mut polled = [PollFd::new(&self.socket, PollFlags::IN | PollFlags::OUT)];
                if poll(&mut polled, None).is_err() {
                    continue;
                }
                let ready = polled[0].revents();
                if ready.contains(PollFlags::IN) {
                    self.read();
                }
                if !ready.contains(PollFlags::OUT) {
                    continue;
                }
            }
            let end = self.out.len().min(sent + CHUNK);
            match rustix::io::write(&self.socket, &self.out[sent..end]) {
                Ok(count) => sent += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => exit(0),
            }
        }
        self.out.clear();
        if self.out.capacity() > 4 * CHUNK {
            self.out.shrink_to(CHUNK);
        }
    }

    /// Waits for bytes, at most until the timeout. Tells whether some came.
    pub(crate) fn fill(&mut self, timeout: Option<Duration>) -> bool {
        if let Some(timeout) = timeout {
            let limit = Timespec {
                tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(timeout.subsec_nanos()),
            };
            let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut polled, Some(&limit)) {
                Ok(0) | Err(_) => return false,
                Ok(_) => {}
            }
        }
        self.read();
        true
    }

    fn read(&mut self) {
        let tail = self.inbox.tail();
        tail.reserve(CHUNK);
        match rustix::io::read(&self.socket, rustix::buffer::spare_capacity(tail)) {
            Ok(0) => exit(0),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => exit(0),
        }
    }
}
