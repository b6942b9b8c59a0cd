//! Checks a folder that is moved: a policy may deny places in it, or their new paths.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use rustix::io::Errno;

use super::failed;
use crate::policy::{Judged, Operation};
use crate::tools::NativeError;
use crate::workspace::path_error::{PathError, shown};
use crate::workspace::reach::Reach;

/// The maximum number of entries of a folder that is moved under a policy.
const ENTRIES_LIMIT: usize = 20_000;

/// The maximum depth of such a folder.
const DEPTH_LIMIT: usize = 128;

/// Checks that the policy allows everything in a folder to be moved from one place to another.
///
/// # Errors
/// Returns what is denied, or that there is too much to check.
pub(super) fn check(
    workspace: Reach<'_>,
    given: &str,
    from: &Path,
    to: &Path,
) -> Result<(), NativeError> {
    let policy = workspace.policy().policy();
    // The built-in policy judges names, which a move does not change.
    if !policy.restricts() {
        return Ok(());
    }
    let system = |errno: Errno| PathError::System { path: shown(given), errno };
    let mut seen = 0;
    let mut folders = vec![(PathBuf::new(), 0)];
    while let Some((inner, depth)) = folders.pop() {
        if depth > DEPTH_LIMIT {
            return Err(failed(format!("`{}` is nested too deeply to be moved", shown(given))));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let folder = match workspace.open_beneath(given, &from.join(&inner), flags) {
            Ok(folder) => folder,
            // It is no folder, or does not exist. The call itself reports that.
            Err(_) if depth == 0 => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for entry in Dir::read_from(&folder.fd).map_err(system)? {
            let entry = entry.map_err(system)?;
            let raw = entry.file_name().to_bytes();
            if matches!(raw, b"." | b"..") {
                continue;
            }
            seen += 1;
            if seen > ENTRIES_LIMIT {
                return Err(failed(format!(
                    "`{}` has more than {ENTRIES_LIMIT} entries, and the policy is applied to each; move a smaller directory",
                    shown(given)
                )));
            }
            let path = inner.join(OsStr::from_bytes(raw));
            for place in [from.join(&path), to.join(&path)] {
                if let Judged::Denied(reason) = policy.place(&place, Operation::Move) {
                    let path = shown(&place.to_string_lossy());
                    return Err(PathError::Denied { path, reason }.into());
                }
            }
            let kind = match entry.file_type() {
                // Some file systems do not store the type in the directory.
                FileType::Unknown => {
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    let stat = rustix::fs::statat(&folder.fd, entry.file_name(), flags);
                    FileType::from_raw_mode(stat.map_err(system)?.st_mode)
                }
                kind => kind,
            };
            if kind == FileType::Directory {
                folders.push((path, depth + 1));
            }
        }
    }
    Ok(())
}
