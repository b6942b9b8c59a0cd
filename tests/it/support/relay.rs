//! A relay between a gateway and its database, by which a test is the network.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::server::Installation;

/// What the network does, and which connections it has forgotten: those of earlier ages.
struct Sky {
    weather: Weather,
    age: usize,
}

type SharedSky = Arc<(Mutex<Sky>, Condvar)>;

/// What the network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weather {
    /// It carries what is sent.
    Fair,
    /// Each piece takes so long.
    Slow(Duration),
    /// It takes what is sent and carries nothing, as when a cable is cut.
    Silent,
    /// Connections end, and none is made.
    Gone,
}

/// A relay to the private Postgres of an installation.
pub(crate) struct Relay {
    port: u16,
    sky: SharedSky,
}

impl Relay {
    /// Starts it.
    pub(crate) fn to(database: &Installation) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let fair = Sky { weather: Weather::Fair, age: 0 };
        let shared: SharedSky = Arc::new((Mutex::new(fair), Condvar::new()));
        let (database, sky) = (database.clone(), Arc::clone(&shared));
        // The threads end with the test process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let socket = PathBuf::from(database.socket_folder()).join(".s.PGSQL.5432");
                if sky.0.lock().unwrap().weather == Weather::Gone {
                    continue;
                }
                let Ok(server) = UnixStream::connect(socket) else { continue };
                carry(client, server, &sky);
            }
        });
        Self { port, sky: shared }
    }

    /// Returns the URL of the database, for the role that serves.
    pub(crate) fn url(&self) -> String {
        format!("postgres://pml_app@127.0.0.1:{}/pml?sslmode=disable", self.port)
    }

    /// Changes the weather, for open connections as well.
    pub(crate) fn set(&self, weather: Weather) {
        self.sky.0.lock().unwrap().weather = weather;
        self.sky.1.notify_all();
    }

    /// Carries nothing more on the connections that are open now, and does not end them: so does a firewall that
    /// was restarted.
    pub(crate) fn forget(&self) {
        self.sky.0.lock().unwrap().age += 1;
        self.sky.1.notify_all();
    }
}

/// Carries both directions; each ends with its connection.
fn carry(client: TcpStream, server: UnixStream, sky: &SharedSky) {
    let (mut from_client, mut to_client) = (client.try_clone().unwrap(), client);
    let (mut from_server, mut to_server) = (server.try_clone().unwrap(), server);
    let (there, back) = (Arc::clone(sky), Arc::clone(sky));
    let age = sky.0.lock().unwrap().age;
    let watched = (to_client.try_clone().unwrap(), to_server.try_clone().unwrap(), Arc::clone(sky));
    std::thread::spawn(move || {
        let (client, server, sky) = watched;
        let stays = |sky: &mut Sky| sky.weather != Weather::Gone;
        drop(sky.1.wait_while(sky.0.lock().unwrap(), stays));
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut piece = [0; 16 * 1024];
        while let Ok(count @ 1..) = from_client.read(&mut piece) {
            if !passes(&there, age) || to_server.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut piece = [0; 16 * 1024];
        while let Ok(count @ 1..) = from_server.read(&mut piece) {
            if !passes(&back, age) || to_client.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

/// Waits as long as the weather asks; tells whether what was read is carried on.
fn passes(sky: &(Mutex<Sky>, Condvar), age: usize) -> bool {
    let now = sky.0.lock().unwrap();
    if now.age != age {
        drop(sky.1.wait_while(now, |sky| sky.weather != Weather::Gone));
        return false;
    }
    match now.weather {
        Weather::Fair => true,
        Weather::Gone => false,
        // The rest of a statement must not arrive after its caller was told that it is lost.
        Weather::Silent => {
            drop(sky.1.wait_while(now, |sky| sky.weather == Weather::Silent));
            false
        }
        Weather::Slow(pause) => {
            let slow = |sky: &mut Sky| matches!(sky.weather, Weather::Slow(_)) && sky.age == age;
            let (now, _) = sky.1.wait_timeout_while(now, pause, slow).unwrap();
            now.weather != Weather::Gone && now.age == age
        }
    }
}
