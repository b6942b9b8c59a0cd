//! Judges one recorded change: what takes it back, if it was made and nobody has changed its place since.

use protocol::{Integrity, escape_text};

use super::Step;
use crate::run_store::reader::Reader;
use crate::run_store::record::{Change, KeptFile, MovedItem};
use crate::tools::NativeError;
use crate::tools::filesystem::restore::Found;
use crate::workspace::path_error::shown;

/// Returns the step that takes a change back; `None` if it was not made, and a conflict if somebody has changed the
/// place since. `find` says what is at a place.
pub(super) fn step(
    find: &dyn Fn(&str) -> Result<Found, NativeError>,
    reader: &Reader,
    change: &Change,
) -> Result<Result<Option<Step>, String>, NativeError> {
    let changed = |path: &str| Err(format!("`{}` was changed since", shown(path)));
    let restored = |path: &str, kept: &KeptFile| {
        let why = match (&kept.hash, &kept.not_kept) {
            (Some(hash), _) if reader.kept(*hash).is_some() => {
                return Ok(Some(Step::Restore { path: path.into(), kept: kept.clone() }));
            }
            (Some(_), _) => "the file with it is missing or was changed".to_owned(),
            (None, why) => escape_text(why.as_deref().unwrap_or("no reason is recorded")),
        };
        Err(format!("the content of `{}` was not kept: {why}", shown(path)))
    };
    let is = |found: Found, content: Integrity, permissions: Option<u32>| match found {
        Found::File { hash, mode, .. } => {
            hash == Some(content) && permissions.is_none_or(|permissions| permissions == mode)
        }
        _ => false,
    };
    let is_kept = |found, kept: &KeptFile| {
        kept.hash.is_some_and(|content| is(found, content, Some(kept.mode)))
    };
    Ok(match change {
        Change::Write { path, before, after, mode } => {
            let found = find(path)?;
            match before {
                None if found == Found::Nothing => Ok(None),
                Some(kept) if is_kept(found, kept) => Ok(None),
                _ if !is(found, *after, *mode) => changed(path),
                None => Ok(Some(Step::Remove { path: path.into() })),
                Some(kept) => restored(path, kept),
            }
        }
        Change::Remove { path, before } => match find(path)? {
            Found::Nothing => restored(path, before),
            found if is_kept(found, before) => Ok(None),
            _ => changed(path),
        },
        Change::Erased { .. } => {
            Err("what the run changed is not known: its values were erased".to_owned())
        }
        Change::CreateFolder { path } => match find(path)? {
            Found::Folder => Ok(Some(Step::RemoveFolder { path: path.into() })),
            Found::Nothing => Ok(None),
            _ => changed(path),
        },
        Change::RemoveFolder { path, mode } => match find(path)? {
            Found::Nothing => Ok(Some(Step::CreateFolder { path: path.into(), mode: *mode })),
            Found::Folder => Ok(None),
            _ => changed(path),
        },
        Change::Move { from, to, moved } => {
            let (old, new) = (find(from)?, find(to)?);
            match (old == Found::Nothing, is_moved(new, moved)) {
                (true, true) => Ok(Some(Step::Move { from: to.into(), to: from.into() })),
                (false, _) if new == Found::Nothing && is_moved(old, moved) => Ok(None),
                (true, false) => changed(to),
                (false, _) => changed(from),
            }
        }
    })
}

/// Returns whether something is what was moved.
fn is_moved(found: Found, moved: &MovedItem) -> bool {
    match (found, moved) {
        (Found::Folder, MovedItem::Folder) => true,
        (Found::Link(found), MovedItem::Link { target }) => found == *target,
        (
            Found::File { hash, bytes, mode },
            MovedItem::File { bytes: size, mode: permissions, hash: content },
        ) => {
            // A file that was too large to be compared then is not compared now.
            bytes == *size && mode == *permissions && (content.is_none() || hash == *content)
        }
        _ => false,
    }
}
