//! A network in which nothing but a proxy can be reached.
//!
//! The process enters a network namespace of its own, which has only the loopback interface. It opens a listening socket
//! there, and hands it over to the process that will be the proxy. A socket stays in the namespace in which it was
//! opened, so the proxy accepts connections of the confined process from outside of its namespace, and nothing else
//! leads out.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, bind, listen, recvmsg, sendmsg,
    socket_with,
};
use rustix::thread::UnshareFlags;
use tokio::io::Interest;
use tokio::net::UnixListener;

/// The port of the proxy, on 127.0.0.1 of the confined process.
pub const PROXY_PORT: u16 = 3128;

/// The number of connections that wait for the proxy.
const BACKLOG: i32 = 128;

/// The socket in the file system over which a confined process hands over the socket of its proxy.
#[derive(Debug)]
pub struct Handover {
    path: PathBuf,
    listener: UnixListener,
}

impl Handover {
    /// Creates the socket in a folder that only this user may enter.
    ///
    /// # Errors
    /// Returns why it cannot be created; the path of a socket has at most 107 bytes.
    pub fn new(folder: &Path) -> std::io::Result<Self> {
        let path = folder.join("proxy");
        let listener = UnixListener::bind(&path)?;
        Ok(Self { path, listener })
    }

    /// Returns its path, for [`Network::Proxied`](super::Network::Proxied).
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the listening socket of the proxy, and removes the one in the file system. It waits for ever if the
    /// process ends before it hands the socket over.
    ///
    /// # Errors
    /// Returns why nothing was handed over.
    pub async fn receive(self) -> std::io::Result<std::net::TcpListener> {
        let (stream, _) = self.listener.accept().await?;
        let _ = std::fs::remove_file(&self.path);
        let received = loop {
            stream.readable().await?;
            match stream.try_io(Interest::READABLE, || Ok(receive(stream.as_fd())?)) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                other => break other?,
            }
        };
        let missing = || std::io::Error::other("the message has no socket");
        let listener = std::net::TcpListener::from(received.ok_or_else(missing)?);
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}

fn receive(socket: impl AsFd) -> Result<Option<OwnedFd>, Errno> {
    let mut bytes = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(&mut bytes)];
    recvmsg(socket, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let received = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(received)
}

/// Puts this process into the network of a proxy, and hands over the proxy's socket. It must have one thread.
pub(super) fn enter(handover: &Path) -> Result<(), String> {
    enter_namespace()?;
    bring_up_loopback().map_err(|errno| format!("the loopback interface: {errno}"))?;
    let listener = listen_for_proxy().map_err(|errno| format!("the proxy's socket: {errno}"))?;
    // A socket in the file system can be reached from every network.
    let proxy = UnixStream::connect(handover).map_err(|error| format!("the proxy: {error}"))?;
    hand_over(&proxy, &listener).map_err(|errno| format!("the proxy: {errno}"))
}

fn enter_namespace() -> Result<(), String> {
    // Root needs no user namespace, in which it would have no rights over files of others.
    if unshare(UnshareFlags::NEWNET).is_ok() {
        return Ok(());
    }
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET).map_err(|errno| {
        format!(
            "only some hosts can be allowed in a network namespace of its own, and this system does not allow one: {errno}"
        )
    })?;
    // The process keeps its user and group, and gets no other.
    let maps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{0} {0} 1", user.as_raw())),
        ("gid_map", format!("{0} {0} 1", group.as_raw())),
    ];
    for (file, text) in maps {
        std::fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| format!("the user namespace: {file}: {error}"))?;
    }
    Ok(())
}

#[expect(unsafe_code, reason = "rustix marks it unsafe for one flag, which is not used")]
fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: only `CLONE_FILES` is unsafe.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Sets the interface `lo` up; without it, not even 127.0.0.1 can be reached.
fn bring_up_loopback() -> Result<(), Errno> {
    // Without a protocol, it is `NETLINK_ROUTE`.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    // RFC 3549: `struct nlmsghdr`, then `struct ifinfomsg`.
    let acknowledged = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let up = libc::IFF_UP as u32;
    let mut message = Vec::with_capacity(32);
    message.extend(32_u32.to_ne_bytes());
    message.extend(libc::RTM_NEWLINK.to_ne_bytes());
    message.extend(acknowledged.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    // Family, padding and type; then the first interface of a namespace, which is `lo`.
    message.extend([0; 4]);
    message.extend(1_i32.to_ne_bytes());
    message.extend(up.to_ne_bytes());
    message.extend(up.to_ne_bytes());
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    let mut reply = [0; 128];
    let (length, _) = rustix::net::recv(&socket, &mut reply[..], RecvFlags::empty())?;
    // `struct nlmsgerr` after the header; 0 means success.
    match reply.get(16..20).filter(|_| length >= 20) {
        Some(&[a, b, c, d]) => match i32::from_ne_bytes([a, b, c, d]) {
            0 => Ok(()),
            code => Err(Errno::from_raw_os_error(-code)),
        },
        _ => Err(Errno::PROTO),
    }
}

fn listen_for_proxy() -> Result<OwnedFd, Errno> {
    let listener =
        socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, PROXY_PORT))?;
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

fn hand_over(proxy: &UnixStream, listener: &OwnedFd) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [listener.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(proxy, &[IoSlice::new(b"p")], &mut ancillary, SendFlags::NOSIGNAL).map(|_| ())
}
