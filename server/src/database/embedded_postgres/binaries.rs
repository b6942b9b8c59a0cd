//! The programs of one Postgres version.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A folder with the programs of one Postgres version.
#[derive(Debug)]
pub(super) struct Binaries {
    pub(super) dir: PathBuf,
}

impl Binaries {
    /// Returns the path of the server program.
    pub(super) fn postgres(&self) -> PathBuf {
        self.dir.join("postgres")
    }

    /// Returns the path of the program that creates clusters.
    pub(super) fn initdb(&self) -> PathBuf {
        self.dir.join("initdb")
    }
}

/// Returns the end of a program's output, short enough for a message.
pub(super) fn tail(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(8)..];
    if last.is_empty() { "it printed nothing".to_owned() } else { last.join("\n") }
}

/// Creates a command with a minimal environment, because the gateway's environment may contain secrets.
pub(super) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.stdin(Stdio::null());
    command
}
