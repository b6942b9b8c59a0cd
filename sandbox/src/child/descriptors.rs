//! The descriptors of a child: the standard streams on `/dev/null`, and one socket.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The descriptor of the one socket.
const SOCKET: i32 = 3;

/// Moves the socket to its fixed number, opens `/dev/null` as the standard streams, and closes everything else.
pub(crate) fn take_descriptors() -> Result<OwnedFd, rustix::io::Errno> {
    let stdin = std::io::stdin();
    let arrived: BorrowedFd<'_> = stdin.as_fd();
    // Somebody may start the binary with the mark by hand. Standard input is then no such socket,
    // and nothing has been closed yet.
    if rustix::net::sockopt::socket_domain(arrived)? != rustix::net::AddressFamily::UNIX {
        return Err(rustix::io::Errno::NOTSOCK);
    }
    #[expect(
        unsafe_code,
        reason = "descriptors are moved to fixed numbers, which no safe type can express"
    )]
    // SAFETY: this runs first in a process of one thread. Nothing owns 3 or anything above it, because all of
    // it was inherited.
    let socket = unsafe {
        if libc::dup2(0, SOCKET) < 0 {
            return Err(rustix::io::Errno::BADF);
        }
        OwnedFd::from_raw_fd(SOCKET)
    };
    // The standard streams stay open: a closed number would go to a later descriptor, which would
    // then receive what a library writes to stderr.
    let nothing = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    // Dropped first, because its owner must not close a number that is closed below.
    drop(nothing);
    // Every descriptor above the socket was inherited and has no owner here.
    close_all_from(SOCKET + 1)?;
    // The child waits by `poll` only, so that it can read while it cannot write.
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// Moves a forked child's socket to the fixed number, which closes the zygote's own there, and closes everything else.
pub(crate) fn take_forked_socket(socket: OwnedFd) -> Result<OwnedFd, rustix::io::Errno> {
    #[expect(
        unsafe_code,
        reason = "descriptors are moved to fixed numbers, which no safe type can express"
    )]
    // SAFETY: the child never returns to the code that owned what lay at this number.
    let moved = unsafe {
        if libc::dup2(socket.as_raw_fd(), SOCKET) < 0 {
            return Err(rustix::io::Errno::BADF);
        }
        OwnedFd::from_raw_fd(SOCKET)
    };
    // The call below closes its number, which its owner must not close again.
    std::mem::forget(socket);
    close_all_from(SOCKET + 1)?;
    rustix::io::ioctl_fionbio(&moved, true)?;
    Ok(moved)
}

/// Closes every descriptor from this number on. An owner of one of them must never use or drop it again.
fn close_all_from(first: i32) -> Result<(), rustix::io::Errno> {
    #[expect(unsafe_code, reason = "no safe wrapper")]
    // SAFETY: the callers are children that have just started, and own none of these.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if closed == 0 { Ok(()) } else { Err(rustix::io::Errno::NOSYS) }
}
