//! A Postgres of the operator's own, which a test restarts and fails over.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use super::cli::text;
use super::guard::{Folder, Guarded};
use super::ports::own_port;
use super::{PATIENCE, poll};

/// The roles and the database, as `docs/operating.md` has them.
const SETUP: [&str; 3] = [
    "create role pml_owner login nosuperuser nobypassrls",
    "create role pml_app login nosuperuser nobypassrls",
    "create database pml owner pml_owner",
];

/// One server of Postgres on a port of its own.
pub(crate) struct Cluster {
    folder: Folder,
    port: u16,
    server: Mutex<Option<Arc<Guarded>>>,
}

impl Cluster {
    /// Creates a server with an empty database, and starts it.
    pub(crate) fn start() -> Self {
        let cluster = Self::prepare();
        let mut initdb = cluster.program("initdb");
        initdb.args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
            "-D",
        ]);
        run(initdb.arg(cluster.data()));
        cluster.serve();
        for statement in SETUP {
            cluster.query("postgres", statement);
        }
        cluster
    }

    /// Starts a standby of this server, and waits until it follows. From then on, a commit waits for the standby, so that
    /// a failover loses none.
    pub(crate) fn standby(&self) -> Self {
        let standby = Self::prepare();
        let mut copy = standby.program("pg_basebackup");
        copy.args(["-h", "127.0.0.1", "-U", "postgres", "-c", "fast", "--no-sync", "-R", "-p"]);
        run(copy.arg(self.port.to_string()).arg("-D").arg(standby.data()));
        standby.serve();
        let follows = "select count(*) from pg_stat_replication where state = 'streaming'";
        poll("the standby to follow", PATIENCE, || (self.sql(follows).trim() == "1").then_some(()));
        self.sql("alter system set synchronous_standby_names = '*'");
        self.sql("select pg_reload_conf()");
        let waits = "select count(*) from pg_stat_replication where sync_state = 'sync'";
        poll("commits to wait", PATIENCE, || (self.sql(waits).trim() == "1").then_some(()));
        standby
    }

    fn prepare() -> Self {
        let folder = Folder::new("pg");
        if let Some((uid, gid)) = account() {
            chown(&*folder, Some(uid), Some(gid)).expect("root may give folders away");
        }
        Self { folder, port: own_port(), server: Mutex::default() }
    }

    /// Starts the server, and waits until it answers.
    pub(crate) fn serve(&self) {
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            // The machine does not lose its power in a test.
            "fsync=off",
            "jit=off",
        ] {
            command.args(["-c", setting]);
        }
        let server = Guarded::start(&command, &self.folder.join("log"));
        *self.server.lock().unwrap() = Some(server);
        poll("Postgres to answer", PATIENCE, || {
            self.psql("postgres", "select 1")
                .output()
                .is_ok_and(|it| it.status.success())
                .then_some(())
        });
    }

    /// Ends the server like a crash: no client is told anything, and nothing is written.
    pub(crate) fn crash(&self) {
        let server = self.server.lock().unwrap().take().expect("it runs");
        // The postmaster then kills its children.
        server.pid().signal("QUIT");
        poll("Postgres to end", PATIENCE, || (!server.pid().is_alive()).then_some(()));
        server.stop();
    }

    /// Makes a standby the primary, and waits until it accepts writes.
    pub(crate) fn promote(&self) {
        self.query("postgres", "select pg_promote()");
        poll("the standby to accept writes", PATIENCE, || {
            (self.query("postgres", "select pg_is_in_recovery()").trim() == "f").then_some(())
        });
    }

    /// Returns its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Runs SQL on the database `pml` as superuser; returns the rows without decoration.
    #[track_caller]
    pub(crate) fn sql(&self, statements: &str) -> String {
        self.query("pml", statements)
    }

    /// Runs SQL whose connection is then killed.
    #[track_caller]
    pub(crate) fn killed_after(&self, statements: &str) {
        let kill = format!("{statements} select pg_terminate_backend(pg_backend_pid())");
        let output = self.psql("pml", &kill).output().expect("psql runs");
        let shown = super::cli::text(&output.stderr);
        assert!(shown.contains("terminating connection"), "{shown}");
    }

    /// Runs SQL on another database as superuser; returns the rows without decoration.
    #[track_caller]
    pub(crate) fn query(&self, database: &str, statements: &str) -> String {
        run(&mut self.psql(database, statements))
    }

    fn psql(&self, database: &str, statements: &str) -> Command {
        let mut command = self.program("psql");
        command.args(["-qXAt", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres"]);
        command.args(["-p", &self.port.to_string(), "-d", database, "-c", statements]);
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Prepares a run of one of its programs, which refuse to run as root.
    fn program(&self, name: &str) -> Command {
        let program = std::env::var_os("PML_PG_BIN")
            .map_or_else(|| PathBuf::from(name), |bin| Path::new(&bin).join(name));
        let mut command = match account() {
            None => Command::new(program),
            Some((uid, gid)) => {
                let mut command = Command::new("setpriv");
                command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
                command.arg("--clear-groups").arg(program);
                command
            }
        };
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("LC_ALL", "C").current_dir("/");
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(server) = self.server.lock().unwrap().take() {
            // A fast shutdown: the guard's `SIGTERM` would wait for clients.
            server.pid().try_signal("INT");
            server.stop();
        }
    }
}

/// Returns the account that runs Postgres if the tests run as root.
fn account() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("the machine has users");
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map(|id| id.parse().ok());
        Some((ids.next()??, ids.next()??))
    };
    Some(["postgres", "nobody"].into_iter().find_map(of).expect("one of them exists"))
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().expect("the programs of Postgres run");
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What leads clients to the primary: a proxy with one server of Postgres behind it, which the operator can change.
pub(crate) struct PrimaryProxy {
    port: u16,
    state: Arc<(AtomicU16, Mutex<Vec<TcpStream>>)>,
}

impl PrimaryProxy {
    /// Starts a proxy to this server.
    pub(crate) fn to(primary: &Cluster) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new((AtomicU16::new(primary.port()), Mutex::default()));
        let shared: Arc<(AtomicU16, Mutex<Vec<TcpStream>>)> = Arc::clone(&state);
        // The threads end with the test process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let target = shared.0.load(Ordering::SeqCst);
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                for stream in [&client, &server] {
                    shared.1.lock().unwrap().push(stream.try_clone().expect("it is open"));
                    stream.set_nodelay(true).expect("it is open");
                }
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone(), to.try_clone());
                    let (from, to) = (from.expect("it is open"), to.expect("it is open"));
                    std::thread::spawn(move || forward(from, to));
                }
            }
        });
        Self { port, state }
    }

    /// Returns its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Leads new connections to another server, and closes those to the old one.
    pub(crate) fn switch(&self, primary: &Cluster) {
        self.state.0.store(primary.port(), Ordering::SeqCst);
        for stream in self.state.1.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    let mut piece = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
