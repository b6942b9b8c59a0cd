//! Atomic writes: a reader sees the old or the new content, and after a crash of `pml` one of them is there.

use std::fs::File;
use std::io::{Error, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::stat_name;

/// Whether a file may already exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It is replaced.
    Replaced,
    /// The write fails with `EEXIST`.
    Kept,
}

/// How the name of a temporary file begins and ends; the random digits are in between.
const TEMPORARY: (&str, &str) = (".pml-write-", ".tmp");

/// Tells whether a file is the temporary one of a write, which only a killed process leaves.
pub fn is_temporary(name: &str) -> bool {
    let digits = name.strip_prefix(TEMPORARY.0).and_then(|rest| rest.strip_suffix(TEMPORARY.1));
    digits.is_some_and(|digits| {
        digits.len() == 24 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Writes a temporary file in an opened folder, then renames it. After a loss of power the file can be empty on some
/// file systems; what must survive that is written by [`write_durably()`].
///
/// Without a `mode`, the process's umask applies, as for any new file. A symbolic link of that name is replaced, never
/// followed.
///
/// # Errors
/// Returns the system's error. The temporary file is removed then.
pub fn write(
    folder: impl AsFd,
    name: &str,
    content: &[u8],
    mode: Option<Mode>,
    existing: Existing,
) -> Result<(), Error> {
    replace(folder.as_fd(), name, content, mode, existing, false)
}

/// Like [`write()`]; when it returns, the content is on the disk, and a loss of power before leaves the old or the new
/// content.
///
/// # Errors
/// As [`write()`].
pub fn write_durably(
    folder: impl AsFd,
    name: &str,
    content: &[u8],
    mode: Option<Mode>,
    existing: Existing,
) -> Result<(), Error> {
    let folder = folder.as_fd();
    replace(folder, name, content, mode, existing, true)?;
    // Some file systems cannot sync a folder. The rename happened; only when it reaches the disk is unknown then.
    match rustix::fs::fsync(folder) {
        Err(Errno::INVAL) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn replace(
    folder: BorrowedFd<'_>,
    name: &str,
    content: &[u8],
    mode: Option<Mode>,
    existing: Existing,
    is_durable: bool,
) -> Result<(), Error> {
    // Random, so that concurrent writers never share a file, and nobody can occupy its name in
    // advance.
    let mut random = [0_u8; 12];
    getrandom::fill(&mut random).map_err(|_| Error::from(std::io::ErrorKind::Other))?;
    let suffix: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let temporary = format!("{}{suffix}{}", TEMPORARY.0, TEMPORARY.1);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The file may contain a secret, so it is private even before its mode is set.
    let first = mode.map_or(Mode::from_raw_mode(0o666), |_| Mode::from_raw_mode(0o600));
    let mut file = File::from(rustix::fs::openat(folder, &temporary, flags, first)?);
    let done = file.write_all(content).and_then(|()| {
        if let Some(mode) = mode {
            // Unlike the mode at creation, this one is not reduced by the umask.
            rustix::fs::fchmod(&file, mode)?;
        }
        if is_durable {
            // Before the rename: otherwise the new name could reach the disk before the content.
            file.sync_all()?;
        }
        Ok(rename(folder, &temporary, folder, name, existing)?)
    });
    if done.is_err() {
        // If this fails too, the first error is still the one to report.
        let _ = rustix::fs::unlinkat(folder, &temporary, AtFlags::empty());
    }
    done
}

/// Renames within opened folders.
///
/// # Errors
/// Returns `EEXIST` if the new name exists and must be preserved.
pub fn rename(
    from: impl AsFd,
    old: &str,
    to: impl AsFd,
    new: &str,
    existing: Existing,
) -> Result<(), Errno> {
    if existing == Existing::Replaced {
        return rustix::fs::renameat(from, old, to, new);
    }
    match rustix::fs::renameat_with(&from, old, &to, new, RenameFlags::NOREPLACE) {
        // Some network file systems do not support `NOREPLACE`. `EINVAL` also means that a folder is moved into itself,
        // which the plain rename reports again.
        Err(Errno::INVAL) => match stat_name(&to, new) {
            // A file that is created between the two calls is replaced. Such file systems offer
            // nothing better.
            Err(Errno::NOENT) => rustix::fs::renameat(from, old, to, new),
            Err(errno) => Err(errno),
            Ok(_) => Err(Errno::EXIST),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_of_writes_are_temporary() {
        let digits = "0123456789abcdef01234567";
        assert!(is_temporary(&format!(".pml-write-{digits}.tmp")));
        for other in [
            format!(".pml-write-{digits}"),
            format!(".pml-write-{digits}0.tmp"),
            format!(".pml-write-{}.tmp", digits.to_uppercase()),
            ".pml-write-.tmp".to_owned(),
            "mcp.lock".to_owned(),
        ] {
            assert!(!is_temporary(&other), "{other}");
        }
    }

    #[test]
    fn a_failed_write_leaves_the_old_content_alone() {
        let root = tempfile::tempdir().unwrap();
        let folder = File::open(root.path()).unwrap();
        std::fs::create_dir(root.path().join("two")).unwrap();
        for is_durable in [false, true] {
            let write = |name, content, existing| {
                replace(folder.as_fd(), name, content, None, existing, is_durable)
            };
            write("one", b"new", Existing::Replaced).unwrap();
            write("one", b"newer", Existing::Kept).unwrap_err();
            write("two", b"new", Existing::Replaced).unwrap_err();
            assert_eq!(std::fs::read(root.path().join("one")).unwrap(), b"new");
            // Neither left its temporary file.
            assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 2);
        }
    }
}
