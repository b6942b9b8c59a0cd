//! The launcher of the private Postgres: one owner, only complete clusters, no process left behind.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::cluster::{self, DEADLINE, chosen_bin, fresh_data_dir};
use crate::embedded_postgres::{Durability, EmbeddedPostgres, EmbeddedPostgresError};
use crate::skipped::skipped;

/// Polls a state of files or processes.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

const NONE: [u32; 0] = [];

/// Returns the processes that work in the cluster of a data directory.
fn processes(data_dir: &Path) -> Vec<u32> {
    let cluster = data_dir.join("postgres");
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&cluster))
        })
        .collect()
}

fn postmaster(data_dir: &Path) -> u32 {
    let file = fs::read_to_string(data_dir.join("postgres/data/postmaster.pid")).unwrap();
    file.lines().next().unwrap().parse().unwrap()
}

fn kill_9(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// Runs a statement as the owner of the database.
fn run(postgres: &EmbeddedPostgres, statement: &'static str) {
    let url = postgres.owner_url();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        connection.execute(statement).await.unwrap();
        connection.close().await.unwrap();
    });
}

#[test]
fn a_second_start_attaches_to_the_first() {
    let data_dir = fresh_data_dir("twice");
    assert!(EmbeddedPostgres::attach(&data_dir).unwrap().is_none(), "nothing is there");
    assert!(!data_dir.exists(), "looking makes nothing");
    let first = cluster::start(&data_dir).unwrap();
    let second = cluster::start(&data_dir).unwrap();
    let third = EmbeddedPostgres::attach(&data_dir).unwrap().unwrap();
    assert!(first.is_owner() && !second.is_owner() && !third.is_owner());
    assert_eq!((first.app_url(), first.app_url()), (second.app_url(), third.app_url()));
    run(&second, "create table kept as select 1 as x");
    // Only the owner stops it.
    second.stop().unwrap();
    drop(third);
    assert!(!first.has_exited());
    run(&first, "select x from kept");
    first.stop().unwrap();
    assert_eq!(processes(&data_dir), NONE);
    assert!(EmbeddedPostgres::attach(&data_dir).unwrap().is_none());
    let again = cluster::start(&data_dir).unwrap();
    assert!(again.is_owner());
    run(&again, "select x from kept");
    drop(again);
    assert_eq!(processes(&data_dir), NONE, "dropping stops it as well");
}

#[test]
fn concurrent_starts_have_one_owner() {
    let data_dir = fresh_data_dir("race");
    let started: Vec<EmbeddedPostgres> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..6).map(|_| scope.spawn(|| cluster::start(&data_dir).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(started.iter().filter(|postgres| postgres.is_owner()).count(), 1);
    for postgres in &started {
        run(postgres, "select 1");
    }
    drop(started);
    assert_eq!(processes(&data_dir), NONE);
}

#[test]
fn a_killed_postmaster_is_detected_and_recovered() {
    let data_dir = fresh_data_dir("killed");
    let postgres = cluster::start(&data_dir).unwrap();
    run(&postgres, "create table kept as select 1 as x");
    kill_9(postmaster(&data_dir));
    until("the owner sees the end", || postgres.has_exited().then_some(()));
    // Its lock file remains, as after a power failure.
    assert!(data_dir.join("postgres/data/postmaster.pid").exists());
    drop(postgres);
    let postgres = cluster::start(&data_dir).unwrap();
    assert!(postgres.is_owner());
    run(&postgres, "select x from kept");
    postgres.stop().unwrap();
    assert_eq!(processes(&data_dir), NONE);
}

/// A separate process that starts the database, prints a line, and waits to be killed.
struct OtherOwner(Child);

/// The variable with the data directory of an [`OtherOwner`].
const OTHER_OWNER: &str = "PML_TEST_OTHER_OWNER";

impl OtherOwner {
    fn command(data_dir: &Path) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["launcher::other_owner", "--exact", "--nocapture", "--test-threads=1"])
            .env(OTHER_OWNER, data_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }

    fn start(data_dir: &Path) -> Self {
        Self(Self::command(data_dir).spawn().unwrap())
    }

    fn await_ready(&mut self) {
        let lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines();
        let ready = lines.map(Result::unwrap).any(|line| line.contains("database ready"));
        assert!(ready, "the other process started the database");
    }

    fn kill_9(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for OtherOwner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The main function of an [`OtherOwner`]; does nothing in an ordinary test run.
#[test]
fn other_owner() {
    let Some(data_dir) = std::env::var_os(OTHER_OWNER) else { return };
    match cluster::start(Path::new(&data_dir)) {
        Ok(postgres) => {
            println!("database ready");
            let _ = std::io::stdin().lines().next();
            postgres.stop().unwrap();
        }
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn the_database_stops_with_a_killed_owner() {
    let data_dir = fresh_data_dir("orphan");
    let mut owner = OtherOwner::start(&data_dir);
    owner.await_ready();
    let here = cluster::start(&data_dir).unwrap();
    assert!(!here.is_owner());
    run(&here, "create table kept as select 1 as x");
    owner.kill_9();
    // Without a pause: the start waits for the processes that the killed owner left behind.
    let after = cluster::start(&data_dir).unwrap();
    assert!(after.is_owner());
    run(&after, "select x from kept");
    after.stop().unwrap();
    assert_eq!(processes(&data_dir), NONE);
    drop(here);
}

/// A cluster whose creation was interrupted at any point is either complete or absent.
#[test]
fn a_killed_creation_leaves_no_half_cluster() {
    // The file that initdb has created when its owner is killed.
    for reached in ["", "PG_VERSION", "pg_wal", "global", "global/pg_control", "base/1/PG_VERSION"]
    {
        let data_dir = fresh_data_dir("half");
        let mut owner = OtherOwner::start(&data_dir);
        let postgres = data_dir.join("postgres");
        until("initdb is at work", || {
            let reached = fs::read_dir(&postgres)
                .ok()?
                .flatten()
                .filter(|entry| entry.file_name().to_string_lossy().starts_with("init."))
                .any(|entry| entry.path().join(reached).exists());
            // On a busy machine, initdb may finish between two checks.
            (reached || postgres.join("data").exists()).then_some(())
        });
        owner.kill_9();
        let data = postgres.join("data");
        if data.exists() {
            assert!(data.join("global/pg_control").exists(), "{reached}: half a cluster");
        }
        let started = cluster::start(&data_dir).unwrap();
        run(&started, "select 1");
        started.stop().unwrap();
        let names: Vec<String> = fs::read_dir(&postgres)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        assert!(!names.iter().any(|name| name.starts_with("init.")), "{reached}: {names:?}");
        assert_eq!(processes(&data_dir), NONE, "{reached}");
    }
}

/// Also next to a complete cluster that was created in the meantime.
#[test]
fn leftovers_of_a_killed_creation_are_removed() {
    let data_dir = fresh_data_dir("leftover");
    cluster::start(&data_dir).unwrap().stop().unwrap();
    let leftover = data_dir.join("postgres/init.1");
    fs::create_dir_all(leftover.join("base/1")).unwrap();
    let started = cluster::start(&data_dir).unwrap();
    assert!(!leftover.exists());
    run(&started, "select 1");
    started.stop().unwrap();
}

#[test]
fn a_cluster_of_another_version_is_refused() {
    let data_dir = fresh_data_dir("version");
    cluster::start(&data_dir).unwrap().stop().unwrap();
    let file = data_dir.join("postgres/data/PG_VERSION");
    let version = fs::read_to_string(&file).unwrap();
    fs::write(&file, "14\n").unwrap();
    match cluster::start(&data_dir).unwrap_err() {
        EmbeddedPostgresError::VersionMismatch { cluster, found, .. } => {
            assert_eq!(cluster, 14);
            assert!(found.split(", ").any(|one| one == version.trim()), "{found}");
        }
        other => panic!("{other}"),
    }
    fs::write(&file, "fourteen\n").unwrap();
    let refused = cluster::start(&data_dir).unwrap_err();
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert!(cause.contains("version number"), "{refused}: {cause}");
    fs::write(&file, version).unwrap();
    cluster::start(&data_dir).unwrap().stop().unwrap();
}

#[test]
fn missing_binaries_explain_how_to_get_postgres() {
    let data_dir = fresh_data_dir("nobin");
    let empty = data_dir.with_extension("bin");
    fs::create_dir(&empty).unwrap();
    let refused = EmbeddedPostgres::start(&data_dir, Some(&empty)).unwrap_err();
    assert!(matches!(refused, EmbeddedPostgresError::NoBinaries { .. }), "{refused}");
    let message = refused.to_string();
    assert!(message.contains("PML_PG_BIN") && message.contains("PML_DATABASE_URL"), "{message}");
}

/// If the path is too long for a socket, the socket is created in a shorter one.
#[test]
fn a_long_path_uses_a_socket_elsewhere() {
    let data_dir = fresh_data_dir(&"long".repeat(30));
    let postgres = cluster::start(&data_dir).unwrap();
    run(&postgres, "select 1");
    let socket_dir = socket_dir(&postgres);
    assert!(!socket_dir.starts_with(&data_dir), "{socket_dir:?}");
    let mode = fs::metadata(&socket_dir).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "only its own account may enter");
    assert_eq!(EmbeddedPostgres::attach(&data_dir).unwrap().unwrap().app_url(), postgres.app_url());
    postgres.stop().unwrap();
    assert!(!socket_dir.exists());
}

#[test]
fn the_error_names_a_path_that_is_too_long() {
    let data_dir = fresh_data_dir(&"long".repeat(30));
    let long_temp = data_dir.with_extension("temp");
    fs::create_dir(&long_temp).unwrap();
    fs::set_permissions(&long_temp, Permissions::from_mode(0o777)).unwrap();
    let output = OtherOwner::command(&data_dir).env("TMPDIR", &long_temp).output().unwrap();
    let message = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = "cannot contain the database's socket: its path is too long for a socket; \
                    use a data directory with a shorter path";
    assert!(message.contains("refused: ") && message.contains(expected), "{message}");
    assert_eq!(processes(&data_dir), NONE);
}

/// Special characters in a path are not interpreted.
#[test]
fn unusual_characters_in_the_path_work() {
    let data_dir = fresh_data_dir("o'dd, \"ü\" %41 $x");
    let postgres = cluster::start(&data_dir).unwrap();
    run(&postgres, "select 1");
    postgres.stop().unwrap();
    assert_eq!(processes(&data_dir), NONE);
}

/// As root: if the account of Postgres cannot enter a folder, its permissions are not changed.
#[test]
fn an_inaccessible_parent_folder_is_reported() {
    if !rustix::process::geteuid().is_root() {
        skipped!("only root runs Postgres under another account");
    }
    let closed = fresh_data_dir("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    let refused = cluster::start(&closed.join("data")).unwrap_err();
    match &refused {
        EmbeddedPostgresError::Unreachable { dir, .. } => {
            assert_eq!(*dir, fs::canonicalize(&closed).unwrap());
        }
        other => panic!("{other}"),
    }
    assert_eq!(fs::metadata(&closed).unwrap().permissions().mode() & 0o777, 0o700);
}

/// A committed row survives if all processes are killed.
#[test]
fn a_durable_cluster_survives_kill_9_of_all_processes() {
    let data_dir = fresh_data_dir("durable");
    let bin = chosen_bin();
    let start =
        || EmbeddedPostgres::start_with(&data_dir, bin.as_deref(), Durability::Durable).unwrap();
    let postgres = start();
    run(&postgres, "create table kept as select 1 as x");
    for pid in processes(&data_dir) {
        // A process may have exited because of a previous kill.
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let _ = kill_process(pid, Signal::KILL);
    }
    until("the owner sees the end", || postgres.has_exited().then_some(()));
    drop(postgres);
    let postgres = start();
    run(&postgres, "select x from kept");
    postgres.stop().unwrap();
}

/// Returns the socket's folder from the URL, where it is percent-encoded.
fn socket_dir(postgres: &EmbeddedPostgres) -> PathBuf {
    let url = postgres.app_url();
    let host = url.split_once("host=").unwrap().1.split_once('&').unwrap().0;
    assert!(!host.contains('%'), "{host}");
    PathBuf::from(host)
}
