//! Puts files and folders back, for `pml runs undo`. Paths are real ones: no link is followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use execution::files::atomic::{self, Existing};
use execution::files::stat_name;
use protocol::Integrity;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::failed;
use crate::tools::NativeError;
use crate::workspace::Workspace;
use crate::workspace::beneath::Place;
use crate::workspace::changes::{Before, Change, Moved, Watch};
use crate::workspace::path_error::{PathError, shown};

/// The size of the largest file that is compared by its content, in bytes. No tool writes a larger one.
const SIZE_LIMIT: i64 = 64 * 1024 * 1024;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// A file.
    File {
        /// The hash of its content; `None` if it is too large or cannot be read.
        hash: Option<Integrity>,
        /// Its size.
        bytes: u64,
        /// Its permissions.
        mode: u32,
    },
    /// A folder.
    Folder,
    /// A link with the hash of its target.
    Link(Integrity),
    /// Something else, or a place that is reached through a link.
    Other,
}

/// Looks at a path.
///
/// # Errors
/// Returns why a file cannot be read.
pub(crate) fn find(workspace: &Workspace, path: &Path) -> Result<Found, NativeError> {
    let place = match place_of(workspace, path) {
        Ok(Some(place)) => place,
        Ok(None) => return Ok(Found::Other),
        Err(error) if error.is_missing() => return Ok(Found::Nothing),
        // A folder on the way is something else by now.
        Err(PathError::System { errno: Errno::NOTDIR, .. } | PathError::Outside { .. }) => {
            return Ok(Found::Other);
        }
        Err(error) => return Err(error.into()),
    };
    let stat = match stat_name(&place.folder, &place.name) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        Err(errno) => return Err(system(path, errno)),
    };
    let (bytes, mode) = (u64::try_from(stat.st_size).unwrap_or(0), stat.st_mode & 0o7777);
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Found::Folder,
        FileType::RegularFile if stat.st_size > SIZE_LIMIT => {
            Found::File { hash: None, bytes, mode }
        }
        FileType::RegularFile => {
            let Before { file, mode, .. } = before(&place, path)?;
            let content = file.map(|file| content(file, path)).transpose()?;
            let bytes = content.as_ref().map_or(bytes, |content| content.len() as u64);
            Found::File { hash: content.map(|content| Integrity::of(&content)), bytes, mode }
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&place.folder, &place.name, Vec::new());
            let target = target.map_err(|errno| system(path, errno))?;
            Found::Link(Integrity::of(target.as_bytes()))
        }
        _ => Found::Other,
    })
}

/// Describes what is about to be moved.
pub(super) fn moved(place: &Place, kind: FileType) -> Result<Moved, Errno> {
    Ok(match kind {
        FileType::Directory => Moved::Folder,
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&place.folder, &place.name, Vec::new())?;
            Moved::Link(target.into_bytes())
        }
        _ => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&place.folder, &place.name, flags, Mode::empty())?;
            let stat = rustix::fs::fstat(&opened)?;
            Moved::File(Before::of(&opened, &stat))
        }
    })
}

/// Lists the names in a folder.
///
/// # Errors
/// Returns why it cannot be read.
pub(crate) fn names(workspace: &Workspace, path: &Path) -> Result<Vec<OsString>, NativeError> {
    let given = path.to_string_lossy();
    let opened = workspace.open_beneath(&given, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let entries = rustix::fs::Dir::read_from(&opened.fd).map_err(|errno| system(path, errno))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|errno| system(path, errno))?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// Writes a file with a content and a mode. If there is a file, it is replaced.
///
/// # Errors
/// Returns why it was not written.
pub(crate) fn write(
    workspace: &Workspace,
    path: &Path,
    content: &[u8],
    mode: u32,
    watch: &Watch<'_>,
) -> Result<(), NativeError> {
    let place = exact(workspace, path)?;
    let (before, existing) = match stat_name(&place.folder, &place.name) {
        Ok(_) => (Some(before(&place, path)?), Existing::Replaced),
        Err(Errno::NOENT) => (None, Existing::Kept),
        Err(errno) => return Err(system(path, errno)),
    };
    let mode = mode & 0o7777;
    announce(watch, Change::Write { path, before, content, mode: Some(mode) })?;
    let mode = Some(Mode::from_raw_mode(mode));
    atomic::write(&place.folder, &place.name, content, mode, existing)
        .map_err(|error| super::read::io_error(&path.to_string_lossy(), &error))
}

/// Removes a file.
///
/// # Errors
/// Returns why it was not removed.
pub(crate) fn remove(
    workspace: &Workspace,
    path: &Path,
    watch: &Watch<'_>,
) -> Result<(), NativeError> {
    let place = exact(workspace, path)?;
    announce(watch, Change::Remove { path, before: before(&place, path)? })?;
    rustix::fs::unlinkat(&place.folder, &place.name, AtFlags::empty())
        .map_err(|errno| system(path, errno))
}

/// Creates a folder with a mode.
///
/// # Errors
/// Returns why it was not created.
pub(crate) fn create_folder(
    workspace: &Workspace,
    path: &Path,
    mode: u32,
    watch: &Watch<'_>,
) -> Result<(), NativeError> {
    let place = exact(workspace, path)?;
    announce(watch, Change::CreateFolder { path })?;
    let mode = Mode::from_raw_mode(mode & 0o7777);
    rustix::fs::mkdirat(&place.folder, &place.name, mode).map_err(|errno| system(path, errno))?;
    // The mode at creation is reduced by the umask.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(&place.folder, &place.name, flags, Mode::empty());
    made.and_then(|made| rustix::fs::fchmod(made, mode)).map_err(|errno| system(path, errno))
}

/// Removes an empty folder.
///
/// # Errors
/// Returns why it was not removed.
pub(crate) fn remove_folder(
    workspace: &Workspace,
    path: &Path,
    watch: &Watch<'_>,
) -> Result<(), NativeError> {
    let place = exact(workspace, path)?;
    let stat = stat_name(&place.folder, &place.name).map_err(|errno| system(path, errno))?;
    announce(watch, Change::RemoveFolder { path, mode: stat.st_mode & 0o7777 })?;
    rustix::fs::unlinkat(&place.folder, &place.name, AtFlags::REMOVEDIR)
        .map_err(|errno| system(path, errno))
}

/// Moves a file, folder or link to a place where nothing is.
///
/// # Errors
/// Returns why it was not moved.
pub(crate) fn rename(
    workspace: &Workspace,
    from: &Path,
    to: &Path,
    watch: &Watch<'_>,
) -> Result<(), NativeError> {
    let (old, new) = (exact(workspace, from)?, exact(workspace, to)?);
    let stat = stat_name(&old.folder, &old.name).map_err(|errno| system(from, errno))?;
    let moved = moved(&old, FileType::from_raw_mode(stat.st_mode));
    let moved = moved.map_err(|errno| system(from, errno))?;
    announce(watch, Change::Move { from, to, moved })?;
    atomic::rename(&old.folder, &old.name, &new.folder, &new.name, Existing::Kept)
        .map_err(|errno| system(to, errno))
}

/// Opens the folder of a path; `None` if a link leads to it.
fn place_of(workspace: &Workspace, path: &Path) -> Result<Option<Place>, PathError> {
    let given = path.to_string_lossy();
    let place = workspace.open_place(&given, path)?;
    Ok((place.real == path).then_some(place))
}

fn exact(workspace: &Workspace, path: &Path) -> Result<Place, NativeError> {
    place_of(workspace, path)?.ok_or_else(|| {
        failed(format!("a link leads to `{}` by now", shown(&path.to_string_lossy())))
    })
}

/// Opens a regular file as it is before a change.
fn before(place: &Place, path: &Path) -> Result<Before, NativeError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(&place.folder, &place.name, flags, Mode::empty());
    let opened = opened.map_err(|errno| system(path, errno))?;
    let stat = rustix::fs::fstat(&opened).map_err(|errno| system(path, errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(failed(format!("`{}` is no file", shown(&path.to_string_lossy()))));
    }
    Ok(Before::of(&opened, &stat))
}

fn content(mut file: File, path: &Path) -> Result<Vec<u8>, NativeError> {
    let mut content = Vec::new();
    file.read_to_end(&mut content)
        .map_err(|error| super::read::io_error(&path.to_string_lossy(), &error))?;
    Ok(content)
}

fn announce(watch: &Watch<'_>, change: Change<'_>) -> Result<(), NativeError> {
    watch(change).map_err(NativeError::not_recorded)
}

fn system(path: &Path, errno: Errno) -> NativeError {
    PathError::System { path: shown(&path.to_string_lossy()), errno }.into()
}
