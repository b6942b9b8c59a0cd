//! Changing the workspace: every change is made through an opened folder.

use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::Value;

use super::{Look, failed, read};
use crate::files::atomic::{self, Existing};
use crate::files::stat_name;
use crate::tools::{NativeError, arguments};
use crate::workspace::beneath::{Place, kind_name};
use crate::workspace::path_error::{PathError, shown};
use crate::workspace::protected::{Deed, Reach};

/// How often a write that raced with another is retried.
const RACE_RETRIES: usize = 8;

#[derive(Deserialize)]
struct WriteFile {
    path: String,
    content: String,
}

pub(super) fn write_file(workspace: Reach<'_>, value: Value) -> Result<String, NativeError> {
    let input: WriteFile = arguments("filesystem:write_file", value)?;
    replace(workspace, &input.path, input.content.as_bytes())?;
    Ok(format!("Successfully wrote to {}", input.path))
}

/// Writes a whole file: to a temporary file first, which is then renamed over it, so that a reader sees the old or
/// the new content and a crash leaves one of them.
pub(super) fn replace(
    workspace: Reach<'_>,
    given: &str,
    content: &[u8],
) -> Result<(), NativeError> {
    let relative = workspace.relative(given)?;
    for _ in 0..RACE_RETRIES {
        let (place, mode) = target(workspace, given, &relative)?;
        let existing = if mode.is_some() { Existing::Replaced } else { Existing::Kept };
        match atomic::write(&place.folder, &place.name, content, mode, existing) {
            Ok(()) => return Ok(()),
            // Somebody created the file in the meantime: decide again, with the present file.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(read::io_error(given, &error)),
        }
    }
    Err(failed(format!("`{}` kept changing while it was written; retry", shown(given))))
}

/// Finds where a file's content is, through links, and its mode if it exists.
fn target(
    workspace: Reach<'_>,
    given: &str,
    relative: &Path,
) -> Result<(Place, Option<Mode>), NativeError> {
    match workspace.open_beneath(given, relative, OFlags::PATH) {
        Ok(opened) => {
            workspace.require_file(given, &opened)?;
            let place = workspace.open_place(given, &opened.real)?;
            workspace.allow(given, &place.real, Deed::Change)?;
            Ok((place, Some(Mode::from_raw_mode(opened.stat.st_mode & 0o777))))
        }
        Err(error) if error.is_missing() => {
            let place = workspace.open_place(given, relative).map_err(|error| match error {
                PathError::System { path, errno: Errno::NOENT } => {
                    failed(format!("`{path}`: its directory does not exist; create it first"))
                }
                other => other.into(),
            })?;
            workspace.allow(given, &place.real, Deed::Change)?;
            // A dangling link points to a place that cannot be checked.
            match stat_name(&place.folder, &place.name) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                    let message = format!("`{}` is a symbolic link to nothing", shown(given));
                    Err(failed(message))
                }
                _ => Ok((place, None)),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Looks where a change would be made: what is missing may be made before it.
pub(super) fn look_at_change(look: &mut Look<'_>, given: &str) -> Result<(), NativeError> {
    let real = look.workspace.real_of(given, &look.workspace.relative(given)?)?;
    look.at(given, &real, Deed::Change)
}

pub(super) fn look_at_write(look: &mut Look<'_>, value: Value) -> Result<(), NativeError> {
    let WriteFile { path, .. } = arguments("filesystem:write_file", value)?;
    look_at_change(look, &path)
}

pub(super) fn look_at_create(look: &mut Look<'_>, value: Value) -> Result<(), NativeError> {
    let CreateDirectory { path } = arguments("filesystem:create_directory", value)?;
    look_at_change(look, &path)
}

pub(super) fn look_at_move(look: &mut Look<'_>, value: Value) -> Result<(), NativeError> {
    let MoveFile { source, destination } = arguments("filesystem:move_file", value)?;
    for path in [&source, &destination] {
        let relative = look.workspace.relative(path)?;
        let real = look.workspace.real_of_entry(path, &relative)?;
        look.at(path, &real, Deed::Move)?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct CreateDirectory {
    path: String,
}

pub(super) fn create_directory(workspace: Reach<'_>, value: Value) -> Result<String, NativeError> {
    let input: CreateDirectory = arguments("filesystem:create_directory", value)?;
    let given = &input.path;
    let relative = workspace.relative(given)?;
    let mut prefix = PathBuf::new();
    for component in relative.components() {
        prefix.push(component);
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match workspace.open_beneath(given, &prefix, flags) {
            Ok(_) => continue,
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error.into()),
        }
        let place = workspace.open_place(given, &prefix)?;
        workspace.allow(given, &place.real, Deed::Change)?;
        match rustix::fs::mkdirat(&place.folder, &place.name, Mode::from_raw_mode(0o777)) {
            // Another call may have made it; whether it is a folder shows at the next step.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(PathError::System { path: shown(given), errno }.into()),
        }
        workspace.open_beneath(given, &prefix, flags)?;
    }
    Ok(format!("Successfully created directory {given}"))
}

#[derive(Deserialize)]
struct MoveFile {
    source: String,
    destination: String,
}

pub(super) fn move_file(workspace: Reach<'_>, value: Value) -> Result<String, NativeError> {
    let MoveFile { source, destination } = arguments("filesystem:move_file", value)?;
    let from = workspace.open_place(&source, &workspace.relative(&source)?)?;
    let to = workspace.open_place(&destination, &workspace.relative(&destination)?)?;
    workspace.allow(&source, &from.real, Deed::Move)?;
    workspace.allow(&destination, &to.real, Deed::Move)?;
    let stat = stat_name(&from.folder, &from.name)
        .map_err(|errno| PathError::System { path: shown(&source), errno })?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink) {
        let path = shown(&source);
        let wanted = "a file or directory";
        return Err(PathError::Kind { path, found: kind_name(kind), wanted }.into());
    }
    match atomic::rename(&from.folder, &from.name, &to.folder, &to.name, Existing::Kept) {
        Ok(()) => Ok(format!("Successfully moved {source} to {destination}")),
        Err(Errno::EXIST) => {
            Err(failed(format!("Destination already exists: {}", shown(&destination))))
        }
        Err(Errno::INVAL) => {
            Err(failed(format!("`{}` cannot be moved into itself", shown(&source))))
        }
        Err(errno) => Err(PathError::System { path: shown(&destination), errno }.into()),
    }
}
