//! The Postgres of the test run, and folders that are removed with it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::embedded_postgres::{Durability, EmbeddedPostgres, EmbeddedPostgresError};

/// Removes a folder when the pipe is closed, which happens when the test process exits in any way. The kernel signals
/// our Postgres to stop at the same time; the script waits for it.
const SWEEP: &str = r#"
read -r _
i=0
while ls "$1"/*/postgres/data/postmaster.pid >/dev/null 2>&1 && [ $i -lt 200 ]; do
  sleep 0.1
  i=$((i + 1))
done
while [ -e "$1" ] && [ $i -lt 300 ]; do
  rm -rf "$1" 2>/dev/null || sleep 0.1
  i=$((i + 1))
done
"#;

/// The folder of the run, and the pipe whose closing removes it.
struct RunFolder {
    path: PathBuf,
    _sweeper: ChildStdin,
}

static RUN: LazyLock<RunFolder> = LazyLock::new(|| {
    let parent = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()]
        .into_iter()
        .find(|folder| open_to_all(folder))
        .expect("a temporary folder that every account may enter");
    let path = tempfile::Builder::new()
        .prefix("pml-reg")
        .permissions(Permissions::from_mode(0o711))
        .tempdir_in(parent)
        .expect("a folder in the temporary folder")
        .keep();
    #[expect(clippy::zombie_processes, reason = "it ends after this process")]
    let mut sweeper = Command::new("/bin/sh")
        .args(["-c", SWEEP, "sweep"])
        .arg(&path)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("`sh` starts");
    let pipe = sweeper.stdin.take().expect("its stdin is a pipe");
    RunFolder { path, _sweeper: pipe }
});

/// As root, Postgres runs under another account, which must be able to enter the folder.
fn open_to_all(folder: &Path) -> bool {
    let enters =
        |folder: &Path| fs::metadata(folder).is_ok_and(|metadata| metadata.mode() & 0o001 != 0);
    fs::canonicalize(folder).is_ok_and(|folder| folder.ancestors().all(enters))
}

/// Returns a folder of the run that does not exist yet.
pub(crate) fn fresh_data_dir(name: &str) -> PathBuf {
    RUN.path.join(format!("{name}-{}", uuid::Uuid::new_v4().simple()))
}

/// Returns the folder of the `postgres` binaries that the environment selects.
pub(crate) fn chosen_bin() -> Option<PathBuf> {
    std::env::var_os("PML_PG_BIN").filter(|bin| !bin.is_empty()).map(PathBuf::from)
}

/// Starts a Postgres on a folder of the run, without durability.
pub(crate) fn start(data_dir: &Path) -> Result<EmbeddedPostgres, EmbeddedPostgresError> {
    EmbeddedPostgres::start_with(data_dir, chosen_bin().as_deref(), Durability::Volatile)
}

/// The Postgres of the whole run. A static is never dropped, so the kernel stops it when this process exits.
static SHARED: LazyLock<EmbeddedPostgres> =
    LazyLock::new(|| start(&fresh_data_dir("shared")).expect("Postgres starts"));

pub(crate) fn shared() -> &'static EmbeddedPostgres {
    &SHARED
}

/// Returns the log of the shared Postgres.
pub(crate) fn shared_log() -> String {
    let folders = fs::read_dir(&RUN.path).expect("the folder of the run");
    let shared = folders
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with("shared-"))
        .expect("the shared Postgres has started");
    let log = fs::read(shared.path().join("postgres/server.log")).expect("its log");
    String::from_utf8_lossy(&log).into_owned()
}

/// The deadline for something that should happen at once, generous for a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Polls until `look` returns a value, and fails at the deadline.
pub(crate) async fn eventually<T, F>(what: &str, mut look: F) -> T
where
    F: AsyncFnMut() -> Option<T>,
{
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
