//! Puts files and folders back, for `pml runs undo`. Paths are real ones: no link is followed.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use protocol::Integrity;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::failed;
use crate::files::atomic::{self, Existing};
use crate::files::stat_name;
use crate::tools::NativeError;
use crate::workspace::Workspace;
use crate::workspace::beneath::Place;
use crate::workspace::changes::{Before, Change, Watch};
use crate::workspace::path_error::{PathError, shown};

/// The size of the largest file that is compared, in bytes.
const SIZE_LIMIT: i64 = 256 * 1024 * 1024;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// A file with this content.
    File(Integrity),
    /// A folder.
    Folder,
    /// A link, something else, or a place that is reached through a link.
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
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Found::Folder,
        // No tool has written it.
        FileType::RegularFile if stat.st_size > SIZE_LIMIT => Found::Other,
        FileType::RegularFile => {
            let Before { file, .. } = before(&place, path)?;
            let Some(file) = file else { return Err(system(path, Errno::ACCESS)) };
            Found::File(hash(file, path)?)
        }
        _ => Found::Other,
    })
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
    announce(watch, Change::Write { path, before, content })?;
    let mode = Some(Mode::from_raw_mode(mode & 0o7777));
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

/// Removes a folder if it is empty; returns whether it was.
///
/// # Errors
/// Returns why it was not removed.
pub(crate) fn remove_folder(
    workspace: &Workspace,
    path: &Path,
    watch: &Watch<'_>,
) -> Result<bool, NativeError> {
    let place = exact(workspace, path)?;
    let stat = stat_name(&place.folder, &place.name).map_err(|errno| system(path, errno))?;
    announce(watch, Change::RemoveFolder { path, mode: stat.st_mode & 0o7777 })?;
    match rustix::fs::unlinkat(&place.folder, &place.name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(errno) => Err(system(path, errno)),
    }
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
    announce(watch, Change::Move { from, to })?;
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

/// Returns the hash of a file's content.
fn hash(mut file: File, path: &Path) -> Result<Integrity, NativeError> {
    let mut content = Vec::new();
    file.read_to_end(&mut content)
        .map_err(|error| super::read::io_error(&path.to_string_lossy(), &error))?;
    Ok(Integrity::of(&content))
}

fn announce(watch: &Watch<'_>, change: Change<'_>) -> Result<(), NativeError> {
    watch(change).map_err(NativeError::not_recorded)
}

fn system(path: &Path, errno: Errno) -> NativeError {
    PathError::System { path: shown(&path.to_string_lossy()), errno }.into()
}
