//! Changes files and folders. Every change is made relative to an opened folder.

use std::path::Path;

use execution::files::atomic::{self, Existing};
use execution::files::stat_name;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::Value;

use super::{Check, failed, moved, read};
use crate::policy::Operation;
use crate::tools::{NativeError, arguments};
use crate::workspace::beneath::{Place, kind_name};
use crate::workspace::changes::{Before, Change};
use crate::workspace::path_error::{PathError, shown};
use crate::workspace::reach::Reach;

/// The maximum number of retries of a write that raced with another one.
const RACE_RETRIES: usize = 8;

#[derive(Deserialize)]
struct WriteFile {
    path: String,
    content: String,
}

/// Returns the path and the new content.
pub(super) fn parts(value: Value) -> Result<(String, String), NativeError> {
    let WriteFile { path, content } = arguments("filesystem:write_file", value)?;
    Ok((path, content))
}

pub(super) fn write_file(workspace: Reach<'_>, value: Value) -> Result<String, NativeError> {
    let input: WriteFile = arguments("filesystem:write_file", value)?;
    replace(workspace, &input.path, input.content.as_bytes())?;
    Ok(format!("Successfully wrote to {}", input.path))
}

/// Replaces the content of a file atomically, or creates the file.
pub(super) fn replace(
    workspace: Reach<'_>,
    given: &str,
    content: &[u8],
) -> Result<(), NativeError> {
    let relative = workspace.relative(given)?;
    // Reserved before it is written, so that concurrent calls cannot exceed the limit together.
    let reserved = workspace.policy().reserve_bytes(content.len() as u64);
    let reserved = reserved.map_err(|reason| denied(given, reason))?;
    for _ in 0..RACE_RETRIES {
        let (place, before) = target(workspace, given, &relative)?;
        let mode = before.as_ref().map(|before| Mode::from_raw_mode(before.mode & 0o777));
        let new_mode = mode.map(|mode| mode.as_raw_mode());
        announce(workspace, Change::Write { path: &place.real, before, content, mode: new_mode })?;
        // A file that did not exist when `target` checked the place was not checked itself, so it
        // must not be replaced.
        let existing = if mode.is_some() { Existing::Replaced } else { Existing::Kept };
        // A new file takes the name. Other hard links keep the old content: one of them may be a
        // protected place, which a check by name cannot see.
        match atomic::write(&place.folder, &place.name, content, mode, existing) {
            Ok(()) => {
                reserved.keep();
                return Ok(());
            }
            // Another process created the file in the meantime: try again, with its mode and the same checks.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(read::io_error(given, &error)),
        }
    }
    Err(failed(format!("`{}` kept changing while it was written; retry", shown(given))))
}

/// Announces a change, so that it can be recorded before it is made.
fn announce(workspace: Reach<'_>, change: Change<'_>) -> Result<(), NativeError> {
    if !change.has_text_paths() {
        return Err(failed(
            "a link leads to a name that is not UTF-8, so the change cannot be recorded".to_owned(),
        ));
    }
    workspace.announce(change).map_err(NativeError::not_recorded)
}

/// Returns the error for a write that exceeds a limit of the policy.
fn denied(given: &str, reason: String) -> PathError {
    PathError::Denied { path: shown(given), reason }
}

/// Resolves the links of a path to the file to write, and returns the present file, if there is one.
fn target(
    workspace: Reach<'_>,
    given: &str,
    relative: &Path,
) -> Result<(Place, Option<Before>), NativeError> {
    match workspace.open_beneath(given, relative, OFlags::PATH) {
        Ok(opened) => {
            workspace.require_file(given, &opened)?;
            // The place of the link's target: the link stays, as it would with an ordinary write.
            let place = workspace.open_place(given, &opened.real)?;
            workspace.allow(given, &place.real, Operation::Change)?;
            // A set-user-ID bit is dropped by a write, as the kernel does.
            Ok((place, Some(Before::of(&opened.fd, &opened.stat))))
        }
        Err(error) if error.is_missing() => {
            let place = workspace.open_place(given, relative).map_err(|error| match error {
                PathError::System { path, errno: Errno::NOENT } => {
                    failed(format!("`{path}`: its directory does not exist; create it first"))
                }
                other => other.into(),
            })?;
            workspace.allow(given, &place.real, Operation::Change)?;
            // The target of a dangling link cannot be checked.
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

/// Checks the place of a change. The file may be missing: an earlier call may create it.
pub(super) fn check_change(check: &mut Check<'_>, given: &str) -> Result<(), NativeError> {
    let real = check.workspace.real_of(given, &check.workspace.relative(given)?)?;
    check.at(given, &real, Operation::Change)
}

pub(super) fn check_write(check: &mut Check<'_>, value: Value) -> Result<(), NativeError> {
    let WriteFile { path, content } = arguments("filesystem:write_file", value)?;
    let fits = check.workspace.policy().check_size(content.len() as u64);
    fits.map_err(|reason| denied(&path, reason))?;
    check_change(check, &path)
}

pub(super) fn check_create(check: &mut Check<'_>, value: Value) -> Result<(), NativeError> {
    let CreateDirectory { path } = arguments("filesystem:create_directory", value)?;
    check_change(check, &path)?;
    // The missing folders on the way are created, too.
    let workspace = check.workspace;
    let real = workspace.real_of(&path, &workspace.relative(&path)?)?;
    for parent in real.ancestors().skip(1).take_while(|part| !workspace.is_folder_itself(part)) {
        match workspace.open_beneath(&path, parent, OFlags::PATH) {
            Ok(_) => break,
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error.into()),
        }
        workspace.guarded(workspace.policy().policy(), &path, parent, Operation::Change)?;
    }
    Ok(())
}

pub(super) fn check_move(check: &mut Check<'_>, value: Value) -> Result<(), NativeError> {
    let MoveFile { source, destination } = arguments("filesystem:move_file", value)?;
    for path in [&source, &destination] {
        let relative = check.workspace.relative(path)?;
        let real = check.workspace.real_of_entry(path, &relative)?;
        check.at(path, &real, Operation::Move)?;
    }
    let from = check.workspace.relative(&source)?;
    let from = check.workspace.real_of_entry(&source, &from)?;
    let to = check.workspace.relative(&destination)?;
    let to = check.workspace.real_of_entry(&destination, &to)?;
    moved::check(check.workspace, &source, &from, &to)
}

#[derive(Deserialize)]
struct CreateDirectory {
    path: String,
}

pub(super) fn create_directory(workspace: Reach<'_>, value: Value) -> Result<String, NativeError> {
    let input: CreateDirectory = arguments("filesystem:create_directory", value)?;
    let given = &input.path;
    let relative = workspace.relative(given)?;
    // One component at a time, because a single call with the whole path could follow a link out of
    // the workspace.
    for prefix in workspace.way_to(&relative) {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match workspace.open_beneath(given, prefix, flags) {
            Ok(_) => continue,
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error.into()),
        }
        let place = workspace.open_place(given, prefix)?;
        workspace.allow_parent(given, &place.real)?;
        announce(workspace, Change::CreateFolder { path: &place.real })?;
        match rustix::fs::mkdirat(&place.folder, &place.name, Mode::from_raw_mode(0o777)) {
            // Another call may have created it; the next step fails if it is not a folder.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(PathError::System { path: shown(given), errno }.into()),
        }
        workspace.open_beneath(given, prefix, flags)?;
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
    workspace.allow(&source, &from.real, Operation::Move)?;
    workspace.allow(&destination, &to.real, Operation::Move)?;
    let stat = stat_name(&from.folder, &from.name)
        .map_err(|errno| PathError::System { path: shown(&source), errno })?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink) {
        let path = shown(&source);
        let wanted = "a file or directory";
        return Err(PathError::Kind { path, found: kind_name(kind), wanted }.into());
    }
    if kind == FileType::Directory {
        moved::check(workspace, &source, &from.real, &to.real)?;
    }
    let moved = super::restore::moved(&from, kind)
        .map_err(|errno| PathError::System { path: shown(&source), errno })?;
    announce(workspace, Change::Move { from: &from.real, to: &to.real, moved })?;
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
