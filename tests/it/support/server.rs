//! The built `pml-server` on its private Postgres.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::binaries::built;
use super::guard::{Folder, Guarded};
use super::processes::Pid;

/// The time limit of the first start, which creates a database.
const START: Duration = Duration::from_secs(120);

/// A running gateway.
pub(crate) struct Server {
    program: Arc<Guarded>,
    url: String,
    installation: Installation,
}

/// A data directory, whether a gateway runs on it or not.
#[derive(Clone)]
pub(crate) struct Installation {
    data_dir: PathBuf,
    log: PathBuf,
    /// Contains both.
    folder: Arc<Folder>,
}

/// A tenant of a gateway and a key for it.
#[derive(Clone)]
pub(crate) struct Tenant {
    /// Its key.
    pub(crate) key: String,
    /// The gateway's URL.
    pub(crate) url: String,
}

impl Installation {
    /// Creates an empty data directory.
    pub(crate) fn new() -> Self {
        let folder = Arc::new(Folder::new("s"));
        Self { data_dir: folder.join("data"), log: folder.join("log"), folder }
    }

    /// Returns the same database for a second gateway with its own log file.
    pub(crate) fn replica(&self) -> Self {
        Self { log: self.log.with_extension("replica"), ..self.clone() }
    }

    /// Returns the data directory.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Returns the gateway's log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Runs SQL on the private Postgres as its superuser; returns the rows without decoration.
    #[track_caller]
    pub(crate) fn sql(&self, statements: &str) -> String {
        let psql = std::env::var_os("PML_PG_BIN")
            .map_or_else(|| PathBuf::from("psql"), |bin| Path::new(&bin).join("psql"));
        let mut command = Command::new(psql);
        command.args(["-qXAt", "-v", "ON_ERROR_STOP=1", "-U", "pml", "-d", "pml"]);
        command.arg("-h").arg(self.socket_folder()).args(["-c", statements]);
        let output = command.output().expect("psql runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "psql: {}\n{stderr}", output.status);
        String::from_utf8(output.stdout).expect("psql writes text")
    }

    /// Returns the socket folder of the running private Postgres.
    #[track_caller]
    pub(crate) fn socket_folder(&self) -> String {
        let file = self.data_dir.join("postgres/data/postmaster.pid");
        let text = std::fs::read_to_string(file).expect("Postgres runs");
        text.lines().nth(4).expect("the fifth line names the folder").to_owned()
    }

    /// Returns the API key that the first start created.
    pub(crate) fn first_key(&self) -> String {
        let path = self.data_dir.join("local.key");
        std::fs::read_to_string(path).expect("the first start writes its key").trim().to_owned()
    }

    /// Prepares a run of `pml-server` on this data directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(built("pml-server"));
        command.args(arguments).env_clear();
        for name in ["PATH", "PML_PG_BIN", "LANG"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("HOME", &**self.folder)
            .env("PML_DATA_DIR", &self.data_dir)
            .env("PML_LISTEN", "127.0.0.1:0")
            // Upstreams of the tests listen on this machine.
            .env("PML_UPSTREAM_PRIVATE_HOSTS", "127.0.0.1,localhost");
        command
    }

    /// Runs `pml-server` and waits for it.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the built program runs")
    }

    /// Runs `pml-server`, which must succeed; returns its stdout.
    #[track_caller]
    pub(crate) fn run_ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "pml-server {arguments:?}: {}\n{stderr}", output.status);
        String::from_utf8(output.stdout).expect("stdout is text")
    }

    /// Starts the gateway.
    pub(crate) fn start(&self) -> Server {
        self.start_with(&[])
    }

    /// Starts the gateway with settings from the environment.
    #[track_caller]
    pub(crate) fn start_with(&self, settings: &[(&str, &str)]) -> Server {
        let mut command = self.command(&[]);
        command.envs(settings.iter().copied());
        self.start_by(&command)
    }

    /// Starts the gateway with a prepared command.
    #[track_caller]
    pub(crate) fn start_by(&self, command: &Command) -> Server {
        let program = Guarded::start(command, &self.log);
        let is_first = |line: &str| line.starts_with("PML gateway ") && line.contains(" on http");
        let Some(line) = program.line(START, is_first) else {
            panic!("the gateway did not start:\n{}{}", program.printed(), self.log());
        };
        let (_, url) = line.split_once(" on ").expect("the line names the URL");
        Server { url: url.trim().to_owned(), program, installation: self.clone() }
    }
}

impl Server {
    /// Returns the gateway that all tests of this process share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| Installation::new().start())
    }

    /// Returns its URL without a trailing slash.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns its process.
    pub(crate) fn pid(&self) -> Pid {
        self.program.pid()
    }

    /// Returns its data directory.
    pub(crate) fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Returns its complete start screen.
    pub(crate) fn start_screen(&self) -> String {
        self.program.line(START, |line| line == "Stop with Ctrl-C.");
        self.program.printed()
    }

    /// Stops it and returns its exit code.
    pub(crate) fn stop(&self) -> Option<i32> {
        self.program.stop()
    }

    /// Kills it with `SIGKILL` and waits until it has ended.
    pub(crate) fn kill(&self) {
        let pid = self.pid();
        pid.signal("KILL");
        super::poll("the killed gateway to end", super::PATIENCE, || {
            (!pid.is_alive()).then_some(())
        });
    }

    /// Creates a new tenant with a key that may execute and read.
    pub(crate) fn tenant(&self) -> Tenant {
        self.tenant_with_rights("execute,read")
    }

    /// Creates a new tenant with a key that has these rights. All tenants of this kind are projects of one organisation.
    pub(crate) fn tenant_with_rights(&self, rights: &str) -> Tenant {
        self.tenant_of(|number| format!("it.p{number}"), rights)
    }

    /// Creates a new tenant in an organisation of its own: what it publishes for everyone has no short name in other
    /// tests.
    pub(crate) fn tenant_of_own_org(&self, rights: &str) -> Tenant {
        self.tenant_of(|number| format!("own{number}.main"), rights)
    }

    fn tenant_of(&self, scope: impl FnOnce(usize) -> String, rights: &str) -> Tenant {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // One at a time: concurrent commands are covered by a separate test.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let scope = scope(COUNT.fetch_add(1, Ordering::Relaxed));
        self.installation.run_ok(&["scope", "create", &scope]);
        let key = self.installation.run_ok(&["keys", "create", "--scope", &scope, "--can", rights]);
        Tenant { key: key.trim().to_owned(), url: self.url.clone() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
