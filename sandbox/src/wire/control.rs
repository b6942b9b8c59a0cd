//! The messages between the host and a zygote: packets. A request can carry one descriptor.
//!
//! Replies carry no descriptor: the kernel limits the descriptors in flight per user, by the sending process's limit of
//! descriptors, and a zygote's is low.
//!
//! A zygote never sees a program, so it is trusted, unlike the children that it forks.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The longest message.
const MAX_MESSAGE: usize = 512;

/// A request of the host to a zygote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Fork a child; its end of the socket comes with the message.
    Fork {
        /// Whether the child warms up before its program arrives.
        warm_up: bool,
    },
    /// Reap the child with this pid, which is already dead.
    Reap(u32),
}

/// A zygote's reply to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The new child's pid, which the kernel does not reuse until the child is reaped.
    Forked(u32),
    /// The status of a child that was reaped: its exit code, or the signal that killed it.
    Reaped(Result<i32, i32>),
    /// The request failed, for this reason.
    Refused(String),
}

/// A message with at most one descriptor.
type Packet = (Vec<u8>, Option<OwnedFd>);

fn send(socket: impl AsFd, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.as_slice();
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    // A peer that has exited must be an error here, not a signal.
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).map(|_| ())
}

/// Returns the next message; an empty one means that the peer has exited.
fn receive(socket: impl AsFd) -> Result<Packet, Errno> {
    let mut bytes = vec![0; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let into = &mut [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut descriptor = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            descriptor = descriptors.last().or(descriptor);
        }
    }
    bytes.truncate(got.bytes);
    Ok((bytes, descriptor))
}

impl Request {
    pub(crate) fn send(
        self,
        socket: impl AsFd,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), Errno> {
        match self {
            Request::Fork { warm_up } => send(socket, &[b'f', u8::from(warm_up)], descriptor),
            Request::Reap(pid) => {
                let mut bytes = vec![b'r'];
                bytes.extend_from_slice(&pid.to_le_bytes());
                send(socket, &bytes, None)
            }
        }
    }

    /// Returns the next request; `None` means that the host has exited.
    pub(crate) fn receive(socket: impl AsFd) -> Option<(Request, Option<OwnedFd>)> {
        let (bytes, descriptor) = receive(socket).ok()?;
        match bytes.as_slice() {
            [b'f', warm_up] => Some((Request::Fork { warm_up: *warm_up != 0 }, descriptor)),
            [b'r', pid @ ..] => {
                Some((Request::Reap(u32::from_le_bytes(pid.try_into().ok()?)), None))
            }
            _ => None,
        }
    }
}

impl Reply {
    pub(crate) fn send(&self, socket: impl AsFd) -> Result<(), Errno> {
        let mut bytes = Vec::new();
        match self {
            Reply::Forked(pid) => {
                bytes.push(b'f');
                bytes.extend_from_slice(&pid.to_le_bytes());
            }
            Reply::Reaped(status) => {
                let (kind, code) = match status {
                    Ok(code) => (b'e', code),
                    Err(signal) => (b's', signal),
                };
                bytes.push(kind);
                bytes.extend_from_slice(&code.to_le_bytes());
            }
            Reply::Refused(message) => {
                bytes.push(b'n');
                bytes.extend_from_slice(
                    // One byte is the kind. The receiver's buffer cuts off what does not fit.
                    &message.as_bytes()[..message.floor_char_boundary(MAX_MESSAGE - 1)],
                );
            }
        }
        send(socket, &bytes, None)
    }

    /// Returns the next reply; an error means that the zygote has exited or that no reply has arrived.
    pub(crate) fn receive(socket: impl AsFd) -> Result<Reply, Errno> {
        let (bytes, _) = receive(socket)?;
        // No bytes: the zygote has closed its end.
        let (kind, rest) = bytes.split_first().ok_or(Errno::PIPE)?;
        let number = || rest.try_into().map(u32::from_le_bytes).map_err(|_| Errno::PROTO);
        Ok(match kind {
            b'f' => Reply::Forked(number()?),
            b'e' => Reply::Reaped(Ok(number()?.cast_signed())),
            b's' => Reply::Reaped(Err(number()?.cast_signed())),
            b'n' => Reply::Refused(String::from_utf8_lossy(rest).into_owned()),
            _ => return Err(Errno::PROTO),
        })
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn requests_and_replies_round_trip() {
        let (host, zygote) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        for warm_up in [true, false] {
            let fork = Request::Fork { warm_up };
            fork.send(&host, Some(host.as_fd())).unwrap();
            let (ask, descriptor) = Request::receive(&zygote).unwrap();
            assert!(ask == fork && descriptor.is_some());
        }
        Request::Reap(7).send(&host, None).unwrap();
        assert_eq!(Request::receive(&zygote).unwrap().0, Request::Reap(7));
        let long = Reply::Refused("é".repeat(1_000));
        for answer in [Reply::Forked(9), Reply::Reaped(Ok(0)), Reply::Reaped(Err(9)), long] {
            answer.send(&zygote).unwrap();
            let got = Reply::receive(&host).unwrap();
            match (&got, &answer) {
                (Reply::Refused(got), Reply::Refused(sent)) => assert!(sent.starts_with(got)),
                _ => assert_eq!(got, answer),
            }
        }
        drop(host);
        assert!(Request::receive(&zygote).is_none());
    }
}
