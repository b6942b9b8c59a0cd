//! The folder of a cluster: its owner, its atomic creation, and the state of a running server as its files show it.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown,
};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::account::{Account, accounts, closed_ancestor};
use super::binaries::{Binaries, command, tail};
use super::postmaster::die_with_parent;
use super::processes::{PidFile, is_alive, pid_of, processes_in};
use super::{Durability, EmbeddedPostgresError as Error, POLL};

/// The longest path of a unix socket, without the final NUL.
const SOCKET_PATH_LIMIT: usize = 107;
/// The name of Postgres' socket on port 5432.
const SOCKET_NAME: &str = ".s.PGSQL.5432";
/// A log larger than this is truncated when the server starts.
const LOG_LIMIT: u64 = 8 * 1024 * 1024;

/// The roles and the database, created before the cluster gets its final name.
///
/// The gateway serves as `pml_app`, which owns nothing and cannot bypass
/// row-level security; migrations run as `pml_owner`.
const ROLES: &str = "\
create role pml_owner login nosuperuser nocreatedb nocreaterole nobypassrls;
create role pml_app login nosuperuser nocreatedb nocreaterole nobypassrls;
create database pml owner pml_owner;
revoke all on database pml from public;
grant connect on database pml to pml_app;
";

/// The folder of one cluster, its lock and its log.
#[derive(Debug)]
pub(super) struct Cluster {
    dir: PathBuf,
    account: Option<Account>,
}

impl Cluster {
    /// Creates the folders, and determines the account that owns them.
    pub(super) fn prepare(data_dir: &Path) -> Result<Self, Error> {
        let root = rustix::process::geteuid().is_root();
        // Postgres of a root gateway runs as another account, which must pass through this folder.
        let mode = if root { 0o711 } else { 0o700 };
        DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(data_dir)
            .map_err(Error::io("create", data_dir))?;
        // One form for all processes: the name of a spare socket folder is a hash of this path, and
        // the working directories in `/proc` are canonical.
        let data_dir = fs::canonicalize(data_dir).map_err(Error::io("open", data_dir))?;
        let dir = data_dir.join("postgres");
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("create", &dir)(error));
            }
            _ => {}
        }
        let account = if root { Some(Self::claim(&data_dir, &dir)?) } else { None };
        let cluster = Self { dir, account };
        cluster.check_owner()?;
        Ok(cluster)
    }

    /// Opens the folder if it exists, without changing anything.
    pub(super) fn existing(data_dir: &Path) -> Result<Option<Self>, Error> {
        let dir = data_dir.join("postgres");
        match fs::canonicalize(&dir) {
            // Without an account: a process that attaches starts no program of Postgres.
            Ok(dir) => Ok(Some(Self { dir, account: None })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("open", &dir)(error)),
        }
    }

    /// Makes the account that will run Postgres the owner of the folder; it cannot be root.
    fn claim(data_dir: &Path, dir: &Path) -> Result<Account, Error> {
        let metadata = fs::metadata(dir).map_err(Error::io("open", dir))?;
        let accounts = accounts();
        // A folder of root is new. Any other owner was chosen at an earlier start, and the cluster
        // in the folder belongs to it.
        let account = if metadata.uid() == 0 {
            ["pml", "postgres", "nobody"]
                .iter()
                .find_map(|name| accounts.iter().find(|account| account.name == *name))
                .ok_or(Error::NoAccount)?
        } else {
            accounts
                .iter()
                .find(|account| account.uid == metadata.uid())
                .ok_or_else(|| Error::ForeignOwner { dir: dir.to_owned(), owner: metadata.uid() })?
        };
        if metadata.uid() == 0 {
            chown(dir, Some(account.uid), Some(account.gid))
                .map_err(Error::io("change the owner of", dir))?;
        }
        // If the data directory belongs to root, let the account pass through it, but not list it.
        let metadata = fs::metadata(data_dir).map_err(Error::io("open", data_dir))?;
        if metadata.uid() == 0 && metadata.mode() & 0o001 == 0 {
            let mode = fs::Permissions::from_mode(metadata.mode() | 0o011);
            fs::set_permissions(data_dir, mode)
                .map_err(Error::io("let the database pass through", data_dir))?;
        }
        match closed_ancestor(data_dir, account) {
            Some(dir) => Err(Error::Unreachable { account: account.name.clone(), dir }),
            None => Ok(account.clone()),
        }
    }

    fn check_owner(&self) -> Result<(), Error> {
        let metadata = fs::metadata(&self.dir).map_err(Error::io("open", &self.dir))?;
        // Postgres refuses a folder of another user as well, but without naming a remedy.
        let expected = self.account.as_ref().map_or(rustix::process::geteuid().as_raw(), |a| a.uid);
        if metadata.uid() != expected {
            return Err(Error::ForeignOwner { dir: self.dir.clone(), owner: metadata.uid() });
        }
        Ok(())
    }

    /// Returns the name of the account if it cannot enter a folder.
    pub(super) fn account_without_access_to(&self, dir: &Path) -> Option<&str> {
        let account = self.account.as_ref()?;
        closed_ancestor(dir, account).map(|_| account.name.as_str())
    }

    pub(super) fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub(super) fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// Takes the lock that the owner of a running database holds; `None` if another process has it.
    pub(super) fn try_lock(&self) -> Result<Option<File>, Error> {
        let path = self.dir.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        // The kernel releases the lock however its owner ends, so it is never stale.
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", &path)(error)),
        }
    }

    /// Returns whether no process owns the cluster.
    pub(super) fn is_free(&self) -> Result<bool, Error> {
        let path = self.dir.join("lock");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(Error::io("open", &path)(error)),
        };
        // A shared lock, so that two processes that only check do not see each other as the owner.
        match file.try_lock_shared() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", &path)(error)),
        }
    }

    /// Returns whether the cluster has been created.
    pub(super) fn exists(&self) -> bool {
        self.data_dir().join("PG_VERSION").is_file()
    }

    /// Returns the major version that created the cluster.
    pub(super) fn version(&self) -> Result<Option<u32>, Error> {
        let path = self.data_dir().join("PG_VERSION");
        match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map(Some).map_err(|_| {
                Error::io("read", &path)(io::Error::other("it does not contain a version number"))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }

    /// Creates the cluster under a temporary name and renames it when it is complete, so that a kill at any time leaves
    /// a complete cluster or none.
    pub(super) fn create(&self, binaries: &Binaries, durability: Durability) -> Result<(), Error> {
        let temporary = self.dir.join(format!("init.{}", std::process::id()));
        let mut initdb = self.command(binaries.initdb());
        initdb
            // `trust` needs no password: only the account itself can access the socket.
            .args(["-U", "pml", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-instructions"])
            .args((durability == Durability::Volatile).then_some("--no-sync"))
            .arg("-D")
            .arg(&temporary);
        run(initdb, "", "creating the database cluster (initdb)")?;
        let mut single = self.command(binaries.postgres());
        // In single-user mode no socket is open, so nobody connects before the roles exist. Without
        // `exit_on_error`, Postgres would continue after a failed statement.
        single.args(["--single", "-c", "exit_on_error=true", "-D"]).arg(&temporary).arg("postgres");
        run(single, ROLES, "creating the database's roles")?;
        let data_dir = self.data_dir();
        fs::rename(&temporary, &data_dir).map_err(Error::io("rename the new cluster to", &data_dir))
    }

    /// Returns the command that serves the cluster.
    pub(super) fn server(
        &self,
        binaries: &Binaries,
        socket_dir: &Path,
        durability: Durability,
    ) -> Result<Command, Error> {
        let mut sockets = std::ffi::OsString::from("unix_socket_directories=\"");
        sockets.push(socket_dir);
        sockets.push("\"");
        let mut server = self.command(binaries.postgres());
        server.arg("-D").arg(self.data_dir()).arg("-c").arg(sockets);
        let mut settings = vec![
            // No TCP: there is no port that can be in use, and none that another user can connect to.
            "listen_addresses=",
            // Without TCP, the port only determines the name of the socket.
            "port=5432",
            "unix_socket_permissions=0700",
            "max_connections=100",
            "timezone=UTC",
            "log_timezone=UTC",
            "log_checkpoints=off",
            // Our queries are short; compiling them costs more than it saves.
            "jit=off",
        ];
        if durability == Durability::Volatile {
            settings.extend(["fsync=off", "full_page_writes=off"]);
        }
        for setting in settings {
            server.args(["-c", setting]);
        }
        // A separate process group: Ctrl-C in a terminal must reach only the gateway, which drains before it stops
        // Postgres.
        server.process_group(0);
        let log = self.open_log()?;
        let stderr = log.try_clone().map_err(Error::io("open", &self.log_path()))?;
        server.stdout(log).stderr(stderr);
        Ok(server)
    }

    fn open_log(&self) -> Result<File, Error> {
        let path = self.log_path();
        // Only at a start: a running server keeps the file open.
        let grown = fs::metadata(&path).is_ok_and(|metadata| metadata.len() > LOG_LIMIT);
        let mut options = OpenOptions::new();
        options.create(true).mode(0o600);
        if grown {
            options.write(true).truncate(true)
        } else {
            options.append(true)
        };
        options.open(&path).map_err(Error::io("open", &path))
    }

    /// Returns the end of the server's log.
    pub(super) fn log_tail(&self) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(self.log_path())?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(4096)))?;
            let mut end = Vec::new();
            file.read_to_end(&mut end)?;
            Ok(end)
        };
        tail(&read().unwrap_or_default())
    }

    /// Returns the folder for the socket: that of the cluster, or a spare one in the temporary folder if the cluster's
    /// path is too long for a socket.
    pub(super) fn socket_dir(&self) -> Result<PathBuf, Error> {
        let fits = |dir: &Path| dir.as_os_str().len() + 1 + SOCKET_NAME.len() <= SOCKET_PATH_LIMIT;
        // The setting is a list of quoted names, so a name cannot contain a quote.
        let plain = |dir: &Path| !dir.as_os_str().as_bytes().contains(&b'"');
        if fits(&self.dir) && plain(&self.dir) {
            return Ok(self.dir.clone());
        }
        let dir = self.spare_socket_dir();
        let unusable = |reason| Err(Error::Socket { dir: dir.clone(), reason });
        if !fits(&dir) || !plain(&dir) {
            return unusable("its path is too long for a socket");
        }
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => {
                if let Some(account) = &self.account {
                    chown(&dir, Some(account.uid), Some(account.gid))
                        .map_err(Error::io("change the owner of", &dir))?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::io("create", &dir)(error)),
        }
        // Other users can write to the temporary folder, so this must be a real folder that belongs to us and that only
        // we can access.
        let metadata = fs::symlink_metadata(&dir).map_err(Error::io("open", &dir))?;
        let ours = self.account.as_ref().map_or(rustix::process::geteuid().as_raw(), |a| a.uid);
        if !metadata.is_dir() || metadata.uid() != ours || metadata.mode() & 0o077 != 0 {
            return unusable("it belongs to another user or is accessible to others");
        }
        Ok(dir)
    }

    fn spare_socket_dir(&self) -> PathBuf {
        // Its keys are fixed, so a later start finds the same folder. Processes that attach read
        // its name from `postmaster.pid` instead.
        let mut hasher = DefaultHasher::new();
        self.dir.hash(&mut hasher);
        std::env::temp_dir().join(format!("pml-{:016x}", hasher.finish()))
    }

    /// Removes the spare folder; Postgres has removed its socket.
    pub(super) fn remove_spare_socket_dir(&self, socket_dir: &Path) {
        if socket_dir == self.spare_socket_dir() {
            // Removes only an empty folder. One that is left behind is used by the next start.
            let _ = fs::remove_dir(socket_dir);
        }
    }

    /// Returns the process id of the server, if its file reports that it is ready.
    pub(super) fn ready_pid(&self) -> Result<Option<u32>, Error> {
        Ok(self.pid_file()?.filter(|file| file.ready).map(|file| file.pid))
    }

    /// Returns the socket's folder, if the server is alive and ready.
    pub(super) fn live_socket_dir(&self) -> Result<Option<PathBuf>, Error> {
        Ok(self.pid_file()?.filter(|file| file.ready && is_alive(file.pid)).map(|f| f.socket_dir))
    }

    fn pid_file(&self) -> Result<Option<PidFile>, Error> {
        let path = self.data_dir().join("postmaster.pid");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(PidFile::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }

    /// Waits until the processes of a killed owner, which the kernel has signalled to stop, have exited, and removes
    /// the files that they left. The caller holds the lock.
    pub(super) fn await_orphans(&self, limit: Duration) -> Result<(), Error> {
        // SIGINT is Postgres's fast shutdown, SIGQUIT the immediate one.
        for signal in [Signal::INT, Signal::QUIT] {
            let deadline = Instant::now() + limit;
            let mut signalled = false;
            loop {
                let orphans = processes_in(&self.dir);
                if orphans.is_empty() {
                    self.remove_half_clusters();
                    return self.remove_stale_pid_file();
                }
                if Instant::now() >= deadline {
                    break;
                }
                // Only the postmaster is signalled, because its children exit with it, and only if
                // it was found in the folder: the id in a stale file may belong to any process.
                let postmaster = self.pid_file()?.map(|file| file.pid);
                let postmaster = postmaster.filter(|pid| orphans.contains(pid));
                if let (false, Some(pid)) = (signalled, postmaster) {
                    signalled = true;
                    if let Some(pid) = pid_of(pid) {
                        let _ = kill_process(pid, signal);
                    }
                }
                std::thread::sleep(POLL);
            }
        }
        let step = "the end of an earlier database process";
        Err(Error::Timeout { step, limit: 2 * limit, log: self.log_path() })
    }

    /// Removes the temporary folders of creations that were killed.
    fn remove_half_clusters(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().starts_with(b"init.") {
                // Such a folder does no harm, and the next start tries to remove it again.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Removes the lock file of a server that has exited.
    ///
    /// Postgres removes it itself at a start, unless the process id now belongs to another process of the same user.
    /// The caller has checked that no process of Postgres works in the folder.
    fn remove_stale_pid_file(&self) -> Result<(), Error> {
        let path = self.data_dir().join("postmaster.pid");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Creates a command that runs as the account, in the cluster's folder.
    fn command(&self, program: PathBuf) -> Command {
        let mut command = command(program);
        command.current_dir(&self.dir);
        if let Some(account) = &self.account {
            // The standard library drops the supplementary groups as well.
            command.uid(account.uid).gid(account.gid);
        }
        command
    }
}

/// Runs a program to its end.
fn run(mut command: Command, input: &str, step: &'static str) -> Result<(), Error> {
    // The program must not outlive this process: the next start removes its folder.
    die_with_parent(&mut command, Signal::KILL);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let program = PathBuf::from(command.get_program());
    let mut child = command.spawn().map_err(Error::io("run", &program))?;
    // The input is far smaller than the buffer of a pipe, so writing it does not wait for a program
    // that is itself waiting for its output to be read.
    if let Some(mut stdin) = child.stdin.take() {
        // A program that exits early closes the pipe; its output has the reason.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(Error::io("run", &program))?;
    if output.status.success() {
        return Ok(());
    }
    let text = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    Err(Error::Failed { step, output: tail(text) })
}
