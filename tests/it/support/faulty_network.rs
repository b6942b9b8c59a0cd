//! A network between a gateway and an upstream, whose faults a test determines.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

/// How many pieces of answers a flapping connection forwards before it is reset.
const GOOD_ANSWERS: usize = 20;

/// What happens to an answer of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It arrives.
    None,
    /// It arrives after this time.
    Late(Duration),
    /// It arrives at one byte a second.
    Trickles,
    /// The connection is reset instead.
    Reset,
    /// Every second connection is reset at its first answer, the others after a few.
    Flapping,
    /// The end of the answer arrives instead, while the connection stays open in the other direction.
    HalfClosed,
}

/// A network in front of an upstream.
pub(crate) struct FaultyNetwork {
    /// The URL of the upstream, through this network.
    pub(crate) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    fault: Mutex<Fault>,
    calls: AtomicUsize,
    connections: AtomicUsize,
}

impl FaultyNetwork {
    /// Starts it without a fault, in front of a server at this URL.
    pub(crate) fn to(url: &str) -> Self {
        let rest = url.strip_prefix("http://").expect("the servers of tests speak plain HTTP");
        let (address, path) = rest.split_once('/').expect("the URL has a path");
        let upstream: SocketAddr = address.parse().expect("the server has an address");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let own = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            fault: Mutex::new(Fault::None),
            calls: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
        });
        let state = Arc::clone(&shared);
        // The threads end with the test process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Ok(server) = TcpStream::connect(upstream) {
                    forward(client, server, &state);
                }
            }
        });
        Self { url: format!("http://{own}/{path}"), shared }
    }

    /// Changes what happens to answers, on open connections as well.
    pub(crate) fn set(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap() = fault;
    }

    /// Returns how many calls of tools were sent through it.
    pub(crate) fn calls(&self) -> usize {
        self.shared.calls.load(Ordering::SeqCst)
    }
}

fn forward(client: TcpStream, server: TcpStream, shared: &Arc<Shared>) {
    let (mut from_client, to_client) = (client.try_clone().unwrap(), client);
    let (from_server, mut to_server) = (server.try_clone().unwrap(), server);
    let (there, back) = (Arc::clone(shared), Arc::clone(shared));
    std::thread::spawn(move || {
        let (mut piece, mut tail) = ([0; 16 * 1024], Vec::new());
        while let Ok(count @ 1..) = from_client.read(&mut piece) {
            const CALL: &[u8] = br#""method":"tools/call""#;
            tail.extend_from_slice(&piece[..count]);
            let found = tail.windows(CALL.len()).filter(|window| *window == CALL).count();
            there.calls.fetch_add(found, Ordering::SeqCst);
            // A name that is cut in two is found with the next piece, and none twice.
            tail.drain(..tail.len().saturating_sub(CALL.len() - 1));
            if to_server.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        answers(from_server, &to_client, &back);
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

/// Forwards what the upstream answers, as the present fault requires.
fn answers(mut from_server: TcpStream, mut to_client: &TcpStream, shared: &Shared) {
    let is_second = shared.connections.fetch_add(1, Ordering::SeqCst) % 2 == 1;
    let mut left = if is_second { 0 } else { GOOD_ANSWERS };
    let mut piece = [0; 16 * 1024];
    while let Ok(count @ 1..) = from_server.read(&mut piece) {
        let fault = *shared.fault.lock().unwrap();
        match fault {
            Fault::Reset => return reset(to_client),
            Fault::Flapping if left == 0 => return reset(to_client),
            Fault::Flapping => left -= 1,
            Fault::HalfClosed => {
                let _ = to_client.shutdown(Shutdown::Write);
                continue;
            }
            Fault::Late(pause) => std::thread::sleep(pause),
            Fault::Trickles => {
                for byte in &piece[..count] {
                    if to_client.write_all(&[*byte]).is_err() {
                        return;
                    }
                    std::thread::sleep(Duration::from_secs(1));
                }
                continue;
            }
            Fault::None => {}
        }
        if to_client.write_all(&piece[..count]).is_err() {
            return;
        }
    }
}

/// Resets a connection, instead of closing it.
fn reset(stream: &TcpStream) {
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
    // The other thread has a copy, so that only a shutdown of both directions ends the connection.
    let _ = stream.shutdown(Shutdown::Both);
}
