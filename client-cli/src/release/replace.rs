//! Replaces this program by another one. At any instant, one of the two is at its place, complete.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flate2::write::GzDecoder;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// The file that is locked while a new program is written and put in place; it is the new program itself.
const NEW: &str = ".pml-upgrade.new";

/// How long the new program may take to say its version.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why this program was not replaced. It is as it was.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplaceError {
    /// Its folder cannot be written.
    #[error("cannot write `{path}`: {reason}")]
    Write {
        /// The file or folder.
        path: String,
        /// The system's error.
        reason: std::io::Error,
    },
    /// Another `pml` does it.
    #[error("another `pml upgrade` is at work in `{0}`")]
    Busy(String),
    /// What was downloaded is not the program.
    #[error("the new program does not work here: {0}")]
    Broken(String),
}

/// A program at its place, while nobody else replaces it.
pub(crate) struct Installation {
    folder: OwnedFd,
    path: PathBuf,
    name: OsString,
    /// The new program.
    file: File,
    mode: Mode,
}

impl Installation {
    /// Prepares the replacement of a program: begins a file in the same folder.
    ///
    /// # Errors
    /// Returns why that cannot be done.
    pub(crate) fn open(program: &Path) -> Result<Self, ReplaceError> {
        let failed = |path: &Path, reason: std::io::Error| ReplaceError::Write {
            path: path.display().to_string(),
            reason,
        };
        let invalid = || failed(program, std::io::ErrorKind::InvalidInput.into());
        let (parent, name) = program.parent().zip(program.file_name()).ok_or_else(invalid)?;
        let found = std::fs::metadata(program).map_err(|error| failed(program, error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(parent, flags, Mode::empty())
            .map_err(|errno| failed(parent, errno.into()))?;
        // One that a killed upgrade left is used again, if it is the user's own.
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let new = parent.join(NEW);
        let file = rustix::fs::openat(&folder, NEW, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| failed(&new, errno.into()))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(ReplaceError::Busy(parent.display().to_string())),
            Err(errno) => return Err(failed(&new, errno.into())),
        }
        let file = File::from(file);
        let own = file.metadata().map_err(|error| failed(&new, error))?;
        // Another upgrade may have put the file in place after it was opened here: then it is the program.
        if !is_entry(&folder, &own) {
            return Err(ReplaceError::Busy(parent.display().to_string()));
        }
        if !own.is_file() || own.uid() != rustix::process::geteuid().as_raw() || own.nlink() != 1 {
            return Err(failed(&new, std::io::Error::other("it is not a file of yours")));
        }
        file.set_len(0).map_err(|error| failed(&new, error))?;
        // What may be executed by others stays so; set-user-ID bits do not.
        let mode = Mode::from_raw_mode(found.mode() & 0o777 | 0o700);
        Ok(Self { folder, path: program.to_owned(), name: name.to_owned(), file, mode })
    }

    /// Returns what unpacks the new program into its file, up to a number of bytes.
    pub(crate) fn unpack(&mut self, limit: u64) -> Unpacker<'_> {
        Unpacker(GzDecoder::new(Bounded { file: &mut self.file, left: limit }))
    }

    /// Checks that the new program says the version, and puts it in the place of the old one.
    ///
    /// # Errors
    /// Returns why not; then the old one is there.
    pub(crate) fn finish(self, version: &str) -> Result<(), ReplaceError> {
        let failed = |reason: std::io::Error| ReplaceError::Write {
            path: self.path.display().to_string(),
            reason,
        };
        rustix::fs::fchmod(&self.file, self.mode).map_err(|errno| failed(errno.into()))?;
        self.file.sync_all().map_err(failed)?;
        // A file that is open for writing cannot be executed, so it is locked again through another descriptor.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let kept = rustix::fs::openat(&self.folder, NEW, flags, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
        let Self { folder, path, name, file, .. } = self;
        let failed = |reason: std::io::Error| ReplaceError::Write {
            path: path.display().to_string(),
            reason,
        };
        let written = file.metadata().map_err(failed)?;
        drop(file);
        let locked = rustix::fs::flock(&kept, FlockOperation::NonBlockingLockExclusive);
        let now = File::from(kept);
        let is_same = now.metadata().is_ok_and(|found| {
            (found.dev(), found.ino(), found.len()) == (written.dev(), written.ino(), written.len())
        });
        if locked.is_err() || !is_same || !is_entry(&folder, &written) {
            return Err(ReplaceError::Busy(path.display().to_string()));
        }
        let said = says_version(&path.with_file_name(NEW)).map_err(ReplaceError::Broken);
        let said = said.and_then(|said| match said == format!("pml {version}") {
            true => Ok(()),
            false => Err(ReplaceError::Broken(format!(
                "it says `{}`, not `pml {version}`",
                protocol::escape_text(&said)
            ))),
        });
        if let Err(error) = said {
            // It is of no use, and complete: nobody should start it.
            let _ = rustix::fs::unlinkat(&folder, NEW, AtFlags::empty());
            return Err(error);
        }
        rustix::fs::renameat(&folder, NEW, &folder, &name).map_err(|errno| failed(errno.into()))?;
        // The rename happened; only when it reaches the disk is unknown without this.
        let _ = rustix::fs::fsync(&folder);
        Ok(())
    }
}

/// Returns whether the entry of the new program in a folder is this file.
fn is_entry(folder: &OwnedFd, file: &std::fs::Metadata) -> bool {
    rustix::fs::statat(folder, NEW, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| (found.st_dev, found.st_ino) == (file.dev(), file.ino()))
}

/// Unpacks a program into its file.
pub(crate) struct Unpacker<'a>(GzDecoder<Bounded<'a>>);

impl Unpacker<'_> {
    /// Adds a part of the packed file.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub(crate) fn take(&mut self, part: &[u8]) -> Result<(), String> {
        self.0.write_all(part).map_err(|error| error.to_string())
    }

    /// Ends it.
    ///
    /// # Errors
    /// Returns that the packed file is cut off.
    pub(crate) fn finish(self) -> Result<(), String> {
        self.0.finish().map(drop).map_err(|error| error.to_string())
    }
}

/// A file with a limit.
struct Bounded<'a> {
    file: &'a mut File,
    left: u64,
}

impl std::io::Write for Bounded<'_> {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        self.left = self
            .left
            .checked_sub(part.len() as u64)
            .ok_or_else(|| std::io::Error::other("it unpacks to more than was signed"))?;
        self.file.write_all(part)?;
        Ok(part.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Starts a program with `--version`, and returns what it prints.
fn says_version(program: &Path) -> Result<String, String> {
    let mut child = Command::new(program)
        .arg("--version")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not answer within {} s", PATIENCE.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    };
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        use std::io::Read as _;
        out.take(256).read_to_string(&mut said).map_err(|error| error.to_string())?;
    }
    match status.success() {
        true => Ok(said.trim_end().to_owned()),
        false => Err(format!("it ended with {status}")),
    }
}
