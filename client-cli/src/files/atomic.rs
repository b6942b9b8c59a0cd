//! Atomic writes: a reader sees the old or the new content, and a crash leaves one of them.

use std::fs::File;
use std::io::{Error, Write};
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::stat_name;

/// Whether a file may already exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It is replaced.
    Replaced,
    /// The write fails with `EEXIST`.
    Kept,
}

/// Writes a temporary file in an opened folder, then renames it.
///
/// Without a `mode`, the process's umask applies, as for any new file. A symbolic link of that name is replaced, never
/// followed.
///
/// # Errors
/// Returns the system's error. The temporary file is removed then.
pub(crate) fn write(
    folder: impl AsFd,
    name: &str,
    content: &[u8],
    mode: Option<Mode>,
    existing: Existing,
) -> Result<(), Error> {
    // Random, so that concurrent writers never share a file, and nobody can occupy its name in
    // advance.
    let mut random = [0_u8; 12];
    getrandom::fill(&mut random).map_err(|_| Error::from(std::io::ErrorKind::Other))?;
    let suffix: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let temporary = format!(".pml-write-{suffix}.tmp");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The file may contain a secret, so it is private even before its mode is set.
    let first = mode.map_or(Mode::from_raw_mode(0o666), |_| Mode::from_raw_mode(0o600));
    let mut file = File::from(rustix::fs::openat(&folder, &temporary, flags, first)?);
    let done = file.write_all(content).and_then(|()| {
        if let Some(mode) = mode {
            // Unlike the mode at creation, this one is not reduced by the umask.
            rustix::fs::fchmod(&file, mode)?;
        }
        Ok(rename(&folder, &temporary, &folder, name, existing)?)
    });
    if done.is_err() {
        // If this fails too, the first error is still the one to report.
        let _ = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
    }
    done
}

/// Renames within opened folders.
///
/// # Errors
/// Returns `EEXIST` if the new name exists and must be preserved.
pub(crate) fn rename(
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
