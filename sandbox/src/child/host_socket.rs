//! The child's end of the socket.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::child::process::exit;
use crate::wire::inbox::Inbox;

/// The minimum size of a read.
const CHUNK: usize = 16 * 1024;

/// The child's end of the socket. Every error on it means that the host has exited, and then the child exits too.
pub(crate) struct HostSocket {
    /// `None` only before the connection to the host.
    socket: Option<OwnedFd>,
    inbox: Inbox,
    out: Vec<u8>,
}

impl HostSocket {
    pub(crate) fn new(socket: OwnedFd) -> HostSocket {
        HostSocket { socket: Some(socket), inbox: Inbox::default(), out: Vec::new() }
    }

    /// Returns a socket without a host, for the zygote's engine. Using it exits the process.
    pub(crate) fn unconnected() -> HostSocket {
        HostSocket { socket: None, inbox: Inbox::default(), out: Vec::new() }
    }

    fn socket(&self) -> &OwnedFd {
        self.socket.as_ref().unwrap_or_else(|| exit(0))
    }

    /// Returns the buffer that the next flush sends.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    pub(crate) fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// Sends the buffer. Reads while the host does not, so that two full sockets cannot block each other.
    pub(crate) fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.out.len() {
            match rustix::io::write(self.socket(), &self.out[sent..]) {
                Ok(count) => sent += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    if self.wait(PollFlags::IN | PollFlags::OUT, None).contains(PollFlags::IN) {
                        self.read();
                    }
                }
                Err(_) => exit(0),
            }
        }
        self.out.clear();
        // One large message must not hold its memory for the rest of the run.
        self.out.shrink_to(16 * CHUNK);
    }

    /// Reserves the usual size of the buffers.
    pub(crate) fn reserve_buffers(&mut self) {
        self.inbox.tail().reserve(CHUNK);
        self.out.reserve(CHUNK / 4);
    }

    /// Ignores everything that arrives, until the host closes the socket; then exits.
    pub(crate) fn wait_for_host_exit(&self) -> ! {
        let mut ignored = [0; 512];
        loop {
            self.wait(PollFlags::IN, None);
            match rustix::io::read(self.socket(), &mut ignored) {
                Ok(1..) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Ok(0) | Err(_) => exit(0),
            }
        }
    }

    /// Waits for bytes, at most until the timeout. Returns whether some may have arrived.
    pub(crate) fn fill(&mut self, timeout: Option<Duration>) -> bool {
        // An error or a hang-up counts as well: the read finds out and exits.
        let ready = !self.wait(PollFlags::IN, timeout).is_empty();
        if ready {
            self.read();
        }
        ready
    }

    fn wait(&self, for_what: PollFlags, timeout: Option<Duration>) -> PollFlags {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let mut polled = [PollFd::new(self.socket(), for_what)];
        match poll(&mut polled, timeout.as_ref()) {
            // A signal ends the wait early. Callers treat that like a timeout.
            Ok(0) | Err(_) => PollFlags::empty(),
            Ok(_) => polled[0].revents(),
        }
    }

    fn read(&mut self) {
        // Not `self.socket()`, which would borrow all of `self` while the inbox is changed.
        let Some(socket) = &self.socket else { exit(0) };
        let tail = self.inbox.tail();
        tail.reserve(CHUNK);
        match rustix::io::read(socket, rustix::buffer::spare_capacity(tail)) {
            Ok(0) => exit(0),
            Ok(_) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => exit(0),
        }
    }
}
