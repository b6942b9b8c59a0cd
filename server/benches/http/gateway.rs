//! Runs the built gateway on its private Postgres during a bench.

use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A running gateway; dropping this stops it.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) folder: PathBuf,
    #[allow(dead_code, reason = "not every bench uses HTTP")]
    pub(crate) address: SocketAddr,
    #[allow(dead_code, reason = "not every bench uses HTTP")]
    pub(crate) key: String,
}

impl Gateway {
    /// Starts the program that was built with this bench, or the one in the folder `PML_TEST_BIN_DIR`.
    pub(crate) fn start() -> Result<Gateway, Box<dyn Error>> {
        let program = match std::env::var_os("PML_TEST_BIN_DIR") {
            Some(folder) => PathBuf::from(folder).join("pml-server"),
            None => env!("CARGO_BIN_EXE_pml-server").into(),
        };
        Self::start_program(&program, "pml-bench")
    }

    /// Starts a program with a folder of its own, whose name begins with `prefix`.
    pub(crate) fn start_program(program: &Path, prefix: &str) -> Result<Gateway, Box<dyn Error>> {
        // The path must be short enough for a unix socket, and accessible to other users: as root, Postgres runs as
        // another one.
        let folder = std::env::temp_dir().join(format!("{prefix}-{}", std::process::id()));
        fs::create_dir(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        let data = folder.join("data");
        let mut child = Command::new(program)
            .env("PML_LISTEN", "127.0.0.1:0")
            .env("PML_DATA_DIR", &data)
            .env("PML_LOG", "warn")
            // Requests are counted, but none is refused.
            .env("PML_RATE_PER_KEY", "1000000/s")
            .env("PML_RATE_PER_ORG", "1000000/s")
            .env("PML_RATE_PER_ADDRESS", "1000000/s")
            .env_remove("PML_DATABASE_URL")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the gateway has no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let mut found = None;
        for line in lines.by_ref() {
            let line = line?;
            if let Some((_, address)) = line.split_once(" on http://") {
                found = Some(address.trim().parse()?);
                break;
            }
        }
        // Keep reading, so that the gateway never waits for a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let address = found.ok_or("the gateway exited during its start; see its log above")?;
        let key = fs::read_to_string(data.join("local.key"))?.trim().to_owned();
        Ok(Gateway { child, folder, address, key })
    }

    #[allow(dead_code, reason = "not every bench needs the process id")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // SIGTERM, so that the gateway stops its Postgres.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
