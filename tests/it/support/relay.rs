//! A relay between a gateway and its database, with which a test simulates network faults.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::server::Installation;

/// The state of the network. Connections of an earlier generation are dead: nothing passes on them any more.
struct State {
    network: Network,
    generation: usize,
}

type SharedState = Arc<(Mutex<State>, Condvar)>;

/// How the network behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// It forwards everything.
    Normal,
    /// It delays each piece by this time.
    Slow(Duration),
    /// It accepts and drops everything without an error, as when a cable is cut.
    Blackhole,
    /// It closes all connections and accepts none.
    Down,
}

/// A relay to the private Postgres of an installation.
pub(crate) struct Relay {
    port: u16,
    state: SharedState,
}

impl Relay {
    /// Starts a relay to the database of this installation.
    pub(crate) fn to(database: &Installation) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let normal = State { network: Network::Normal, generation: 0 };
        let shared: SharedState = Arc::new((Mutex::new(normal), Condvar::new()));
        let (database, state) = (database.clone(), Arc::clone(&shared));
        // The threads end with the test process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let socket = PathBuf::from(database.socket_folder()).join(".s.PGSQL.5432");
                if state.0.lock().unwrap().network == Network::Down {
                    continue;
                }
                let Ok(server) = UnixStream::connect(socket) else { continue };
                forward(client, server, &state);
            }
        });
        Self { port, state: shared }
    }

    /// Returns the URL of the database, for the role that serves.
    pub(crate) fn url(&self) -> String {
        format!("postgres://pml_app@127.0.0.1:{}/pml?sslmode=disable", self.port)
    }

    /// Changes the behaviour of the network, for open connections as well.
    pub(crate) fn set(&self, network: Network) {
        self.state.0.lock().unwrap().network = network;
        self.state.1.notify_all();
    }

    /// Drops everything on the connections that are open now without closing them, like a restarted firewall that has
    /// lost its connection table.
    pub(crate) fn kill_open_connections(&self) {
        self.state.0.lock().unwrap().generation += 1;
        self.state.1.notify_all();
    }
}

/// Forwards both directions until one side closes.
fn forward(client: TcpStream, server: UnixStream, state: &SharedState) {
    let (mut from_client, mut to_client) = (client.try_clone().unwrap(), client);
    let (mut from_server, mut to_server) = (server.try_clone().unwrap(), server);
    let (there, back) = (Arc::clone(state), Arc::clone(state));
    let generation = state.0.lock().unwrap().generation;
    let watched =
        (to_client.try_clone().unwrap(), to_server.try_clone().unwrap(), Arc::clone(state));
    std::thread::spawn(move || {
        let (client, server, state) = watched;
        let stays = |state: &mut State| state.network != Network::Down;
        drop(state.1.wait_while(state.0.lock().unwrap(), stays));
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut piece = [0; 16 * 1024];
        while let Ok(count @ 1..) = from_client.read(&mut piece) {
            if !passes(&there, generation) || to_server.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut piece = [0; 16 * 1024];
        while let Ok(count @ 1..) = from_server.read(&mut piece) {
            if !passes(&back, generation) || to_client.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

/// Waits as the network requires; returns whether the piece that was read is forwarded.
fn passes(state: &(Mutex<State>, Condvar), generation: usize) -> bool {
    let now = state.0.lock().unwrap();
    if now.generation != generation {
        drop(state.1.wait_while(now, |state| state.network != Network::Down));
        return false;
    }
    match now.network {
        Network::Normal => true,
        Network::Down => false,
        // The rest of a statement must not arrive after its caller got the error.
        Network::Blackhole => {
            drop(state.1.wait_while(now, |state| state.network == Network::Blackhole));
            false
        }
        Network::Slow(pause) => {
            let slow = |state: &mut State| {
                matches!(state.network, Network::Slow(_)) && state.generation == generation
            };
            let (now, _) = state.1.wait_timeout_while(now, pause, slow).unwrap();
            now.network != Network::Down && now.generation == generation
        }
    }
}
