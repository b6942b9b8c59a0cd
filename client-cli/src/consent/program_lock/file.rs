//! Reads the lock of a program strictly, and writes it atomically.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use execution::files::atomic::{self, Existing};
use protocol::{ErrorBody, ErrorCode, Fqdn, ToolId, escape_text};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::{Difference, ProgramLock, VERSION};
use crate::capabilities;
use crate::files::strict_json;

/// The maximum file size in bytes.
const FILE_LIMIT: usize = 1024 * 1024;

/// The lock of a program, as it was read from its file.
#[derive(Debug)]
pub(crate) struct LockFile {
    /// The program's file, for display.
    program: String,
    /// What it was locked to.
    pub(crate) lock: ProgramLock,
    /// Whether it is that of a run that is resumed.
    is_recorded: bool,
}

impl LockFile {
    /// Returns the path of the lock of a program: its own with `.lock` at the end.
    pub(crate) fn path(program: &Path) -> PathBuf {
        let mut path = OsString::from(program);
        path.push(".lock");
        PathBuf::from(path)
    }

    /// Reads the lock of a program; `None` if there is none.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` for any other file of that name: it never counts as no lock.
    pub(crate) fn read(program: &Path) -> Result<Option<Self>, ErrorBody> {
        let path = Self::path(program);
        let shown = shown(&path);
        let lock = read(&path).map_err(|what| invalid(&shown, &what))?;
        let program = self::shown(program);
        Ok(lock.map(|lock| Self { program, lock, is_recorded: false }))
    }

    /// Returns it for the record of a run.
    pub(crate) fn record(&self) -> Value {
        json!({ "program": self.program, "lock": self.lock })
    }

    /// Reads the lock in the record of a run that is resumed.
    ///
    /// # Errors
    /// Returns why it is not a lock, as the rest of a sentence about it.
    pub(crate) fn recorded(record: &Value) -> Result<Self, String> {
        let program = record["program"].as_str().ok_or("it names no program")?;
        let lock = parse(record["lock"].to_string().as_bytes())?;
        Ok(Self { program: escape_text(program), lock, is_recorded: true })
    }

    /// Replaces the lock of a program atomically.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if it cannot be written. A previous file is unchanged then.
    pub(crate) fn write(program: &Path, lock: &ProgramLock) -> Result<(), ErrorBody> {
        let path = Self::path(program);
        write(&path, lock).map_err(|what| {
            invalid(&shown(&path), &format!("cannot be written: {}", escape_text(&what)))
        })
    }

    /// Checks what would run now against the lock.
    ///
    /// # Errors
    /// Returns `INTEGRITY_MISMATCH` with the difference. Nothing must run then.
    pub(crate) fn check(&self, now: &ProgramLock) -> Result<(), ErrorBody> {
        let difference = Difference::between(&self.lock, now);
        if difference.is_empty() {
            return Ok(());
        }
        let program = &self.program;
        let lines = difference.lines().join("\n");
        let message =
            format!("the program or its tools are not what `{program}.lock` has:\n{lines}");
        let mut error = ErrorBody::new(ErrorCode::IntegrityMismatch, message)
            .with_details(json!({ "difference": difference }));
        error.hint = self.hint();
        Err(error)
    }

    /// Returns what to do about a difference.
    pub(crate) fn hint(&self) -> String {
        let program = &self.program;
        if self.is_recorded {
            return "The run goes on only with the tools that it began with; else run the program again."
                .to_owned();
        }
        format!("Review the difference; if it is intended, run `pml lock {program}`.")
    }
}

fn shown(path: &Path) -> String {
    escape_text(&path.to_string_lossy())
}

fn invalid(file: &str, what: &str) -> ErrorBody {
    let mut error = ErrorBody::new(ErrorCode::ConfigInvalid, format!("`{file}`: {what}"));
    error.hint = "Restore the file, or delete it and run `pml lock` again.".to_owned();
    error
}

fn read(path: &Path) -> Result<Option<ProgramLock>, String> {
    // A link could lead anywhere, and opening a FIFO could block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err("it is a symbolic link".to_owned()),
        Err(errno) => return Err(errno.to_string()),
    };
    if !file.metadata().map_err(|error| error.to_string())?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let read = file.take(FILE_LIMIT as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() > FILE_LIMIT {
        return Err("it is larger than 1 MiB".to_owned());
    }
    parse(&bytes).map(Some).map_err(|what| escape_text(&what))
}

/// Parses a lock.
pub(super) fn parse(bytes: &[u8]) -> Result<ProgramLock, String> {
    // For a map, serde silently keeps the last of two equal keys; a reviewer may have read the first.
    strict_json::check_unique(bytes)?;
    let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    // Before the other fields, which a newer version may have changed.
    if let Some(version) = value.get("version").filter(|version| **version != VERSION) {
        return Err(format!("it has version {version}, and this `pml` reads version {VERSION}"));
    }
    let lock: ProgramLock = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    // serde also accepts lists for structs and `null` for what is absent. One lock has one meaning and one form.
    if serde_json::to_value(&lock).ok().as_ref() != Some(&value) {
        return Err("it does not have the form that `pml lock` writes".to_owned());
    }
    let inner = lock.capabilities.values().flat_map(|capability| capability.tools.keys());
    for id in lock.tools.keys().chain(inner) {
        // Every id has one spelling, so that none is there twice.
        if !id.parse::<ToolId>().is_ok_and(|parsed| parsed.as_str() == id) {
            return Err(format!("`{id}` is not the id of a tool"));
        }
    }
    if let Some(name) = lock.capabilities.keys().find(|name| !is_capability(name)) {
        return Err(format!("`{name}` is not the full name of a capability with its version"));
    }
    Ok(lock)
}

fn is_capability(text: &str) -> bool {
    let Some((name, version)) = text.split_once('@') else { return false };
    let is_name = name.parse::<Fqdn>().is_ok_and(|name| name.action().is_some());
    is_name && capabilities::version(version).is_some()
}

fn write(path: &Path, lock: &ProgramLock) -> Result<(), String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or("its name is not UTF-8")?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder =
        rustix::fs::open(folder, flags, Mode::empty()).map_err(|errno| errno.to_string())?;
    let mut text = serde_json::to_vec_pretty(lock).map_err(|error| error.to_string())?;
    text.push(b'\n');
    atomic::write_durably(folder, name, &text, None, Existing::Replaced)
        .map_err(|error| error.to_string())
}
