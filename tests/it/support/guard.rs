//! Clean-up: no process and no folder of a test run outlives it.
//!
//! Each gateway is started by a guard, a small `sh` script that holds one end of a pipe. When the test closes the other
//! end, or dies for any reason, the guard stops the gateway. Another guard removes the folder of the whole run.

use std::io::{BufRead as _, BufReader};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::processes::Pid;

/// Starts a program and stops it when the pipe ends: with `SIGTERM`, and after 30 seconds with `SIGKILL`.
const WATCH: &str = r#"
"$@" </dev/null &
pid=$!
echo "@pid $pid"
read -r _
kill -TERM $pid 2>/dev/null
i=0
while [ $i -lt 300 ] && read -r _ _ state _ 2>/dev/null < /proc/$pid/stat && [ "$state" != Z ]; do
  sleep 0.1
  i=$((i + 1))
done
kill -KILL $pid 2>/dev/null
wait $pid
echo "@exit $?"
"#;

/// Removes a folder when the pipe ends. It retries while processes still write there.
const REMOVE: &str = r#"
read -r _
i=0
while [ -e "$1" ] && [ $i -lt 300 ]; do
  rm -rf "$1" 2>/dev/null || sleep 0.1
  i=$((i + 1))
done
"#;

/// A program that is run by a guard, with its output.
pub(crate) struct Guarded {
    guard: Mutex<Option<Child>>,
    printed: Arc<(Mutex<Printed>, Condvar)>,
}

#[derive(Default)]
struct Printed {
    lines: Vec<String>,
    ended: bool,
}

impl Guarded {
    /// Starts `command`; its stdout is kept, its stderr goes to the file `log`.
    pub(crate) fn start(command: &Command, log: &Path) -> Arc<Self> {
        let file = std::fs::File::create(log).expect("a log can be made in our own folder");
        let mut guard = Command::new("sh");
        guard.args(["-c", WATCH, "guard"]).arg(command.get_program()).args(command.get_args());
        guard.env_clear().stderr(file);
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                guard.env(name, value);
            }
        }
        Self::spawn(guard)
    }

    fn spawn(mut guard: Command) -> Arc<Self> {
        // A separate process group: Ctrl-C on the terminal reaches only the test, whose end closes the pipe.
        let mut child = guard
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`sh` runs");
        let stdout = child.stdout.take().expect("stdout is piped");
        let printed = Arc::new((Mutex::new(Printed::default()), Condvar::new()));
        let writer = Arc::clone(&printed);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                writer.0.lock().unwrap().lines.push(line);
                writer.1.notify_all();
            }
            writer.0.lock().unwrap().ended = true;
            writer.1.notify_all();
        });
        let guarded = Arc::new(Self { guard: Mutex::new(Some(child)), printed });
        at_exit(Arc::clone(&guarded));
        guarded
    }

    /// Waits for the first printed line that `wanted` accepts. Returns `None` if the program ends or the time is over
    /// before.
    pub(crate) fn line(&self, patience: Duration, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let deadline = Instant::now() + patience;
        let mut printed = self.printed.0.lock().unwrap();
        loop {
            if let Some(line) = printed.lines.iter().find(|line| wanted(line)) {
                return Some(line.clone());
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let exited = printed.lines.iter().any(|line| line.starts_with("@exit"));
            if printed.ended || exited {
                return None;
            }
            printed = self.printed.1.wait_timeout(printed, left).unwrap().0;
        }
    }

    /// Returns everything that the program has printed so far.
    pub(crate) fn printed(&self) -> String {
        let printed = self.printed.0.lock().unwrap();
        printed
            .lines
            .iter()
            .filter(|line| !line.starts_with('@'))
            .fold(String::new(), |text, line| text + line + "\n")
    }

    /// Returns the program's process.
    pub(crate) fn pid(&self) -> Pid {
        let line = self
            .line(super::PATIENCE, |line| line.starts_with("@pid "))
            .expect("the guard prints the process id");
        Pid::of(line["@pid ".len()..].parse().expect("a process id is a number"))
    }

    /// Stops the program and returns its exit code as seen by `sh`.
    pub(crate) fn stop(&self) -> Option<i32> {
        let mut guard = self.guard.lock().unwrap().take()?;
        drop(guard.stdin.take());
        let _ = guard.wait();
        let line = self.line(Duration::from_secs(5), |line| line.starts_with("@exit "))?;
        line["@exit ".len()..].parse().ok()
    }
}

/// The guards that are closed when the process exits, last first.
static OPEN: Mutex<Vec<Arc<Guarded>>> = Mutex::new(Vec::new());

fn at_exit(guarded: Arc<Guarded>) {
    static REGISTERED: OnceLock<()> = OnceLock::new();
    REGISTERED.get_or_init(|| {
        // SAFETY: `close_all` is a plain function that touches only this module's statics.
        #[expect(unsafe_code, reason = "the test harness has no hook for its own end")]
        let registered = unsafe { libc::atexit(close_all) };
        assert_eq!(registered, 0, "a handler can be registered");
    });
    OPEN.lock().unwrap().push(guarded);
}

extern "C" fn close_all() {
    // A test thread may have panicked with the lock held; the list is still consistent.
    let mut open = OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    while let Some(guarded) = open.pop() {
        guarded.stop();
    }
}

/// Creates a folder that is removed after the run.
///
/// All users may enter it, because the private Postgres of root runs as another user. The path is short, because the
/// path of a Unix socket is limited to 107 bytes.
pub(crate) fn folder(name: &str) -> PathBuf {
    static RUN: OnceLock<PathBuf> = OnceLock::new();
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let run = RUN.get_or_init(|| {
        let run = PathBuf::from(format!("/tmp/pml-it-{}", std::process::id()));
        // It may be left by a process with the same number that was killed together with its guard.
        let _ = std::fs::remove_dir_all(&run);
        make(&run);
        if std::env::var_os("PML_TEST_KEEP").is_none() {
            let mut remover = Command::new("sh");
            remover.args(["-c", REMOVE, "remover"]).arg(&run).stderr(Stdio::null());
            Guarded::spawn(remover);
        }
        run
    });
    let folder = run.join(format!("{name}{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    make(&folder);
    folder
}

/// A folder that is removed as soon as nobody holds it, for what is large: hundreds of databases would fill a disk. What
/// cannot be removed yet goes with the folder of the run.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates one.
    pub(crate) fn new(name: &str) -> Self {
        Self(folder(name))
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // After a failure, it may show the reason.
        if std::env::var_os("PML_TEST_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

fn make(folder: &Path) {
    std::fs::create_dir(folder).expect("a folder can be made in /tmp");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, open).expect("our own folder can be opened");
}
