//! Ports that stay a program's own while it is down.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Linux gives ports from 32768 on to whoever binds port 0. One of those could be taken while its program restarts.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Returns a port of this machine that nobody uses, and that no other call returns.
pub(crate) fn own_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Concurrent runs of the tests begin at different places.
    let start = u16::try_from(std::process::id() % 120).unwrap() * 100;
    loop {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = FIRST + offset;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
