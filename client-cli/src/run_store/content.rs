//! The values in records: without the keys in use, and large ones as files named after their hash. Next to them, the
//! contents of files that calls replaced or removed.

use std::io::Read as _;
use std::path::Path;

use protocol::redaction::keys_in_use;
use protocol::{Integrity, canonical_json};
use serde_json::Value;

use super::record::{Content, KeptFile, MovedItem};
use super::{Keeping, StoreError};
use crate::files::records::{RecordFile, name_of_hash};
use crate::workspace::changes::{Before, Moved};

/// The folder of large values, in that of the store.
const FOLDER: &str = "contents";
/// The length of the largest text that is part of its record, in bytes.
const INLINE_LIMIT: usize = 16 * 1024;
/// The length of the largest value that is stored, in bytes. A result of a tool has at most 8 MiB, and escapes can
/// make its JSON text six times as long.
const LIMIT: usize = 64 * 1024 * 1024;

/// The size of the largest file that is kept before it is replaced, in bytes.
const KEPT_LIMIT: u64 = 16 * 1024 * 1024;
/// The size of all large values and kept files at which no more files are kept, in bytes.
const KEPT_TOTAL: u64 = 1024 * 1024 * 1024;

/// Prepares a value for a record: its JSON text in canonical form.
pub(super) fn store(folder: &Path, value: &Value) -> Result<Content, StoreError> {
    store_text(folder, &canonical_json(value.clone()))
}

/// Prepares what a call returned for a record: its JSON text with the members in their order, which the program sees.
pub(super) fn store_output(folder: &Path, value: &Value) -> Result<Content, StoreError> {
    store_text(folder, &value.to_string())
}

/// Returns the hash that the record of a value has.
pub(super) fn hash(value: &Value) -> Integrity {
    Integrity::of(keys_in_use().text(&canonical_json(value.clone())).as_bytes())
}

fn store_text(folder: &Path, json: &str) -> Result<Content, StoreError> {
    // Keys are removed before anything is hashed: a hash would confirm a guess of the key.
    let text = keys_in_use().text(json).into_owned();
    let redacted = text != json;
    let (hash, bytes) = (Integrity::of(text.as_bytes()), text.len() as u64);
    if text.len() <= INLINE_LIMIT {
        return Ok(Content { hash, bytes, json: Some(text), redacted, erased: false });
    }
    let file = file(folder, hash);
    // A file of that name with other bytes was cut off or changed: it is replaced.
    if file.read().is_none_or(|found| found != text.as_bytes()) {
        file.write(text.as_bytes())
            .map_err(|error| StoreError::system(path(folder, hash), error))?;
    }
    Ok(Content { hash, bytes, json: None, redacted, erased: false })
}

/// Keeps the content of a file that is about to be replaced or removed, byte for byte: a key in it is not removed, so
/// that it can be put back. `kept` counts what is kept in total.
pub(super) fn keep(
    folder: &Path,
    before: Before,
    kept: &mut Option<u64>,
    keeping: Keeping,
) -> Result<KeptFile, StoreError> {
    let Before { file, mode, bytes } = before;
    let without = |why: String| KeptFile { bytes, mode, hash: None, not_kept: Some(why) };
    let Some(file) = file else { return Ok(without("it could not be read".to_owned())) };
    let mut content = Vec::new();
    if let Err(error) = file.take(KEPT_LIMIT + 1).read_to_end(&mut content) {
        return Ok(without(format!("it could not be read: {error}")));
    }
    if content.len() as u64 > KEPT_LIMIT {
        return Ok(without(format!("it is larger than {} MiB", KEPT_LIMIT >> 20)));
    }
    let total = kept.get_or_insert_with(|| self::total(folder));
    if keeping == Keeping::Bounded && *total + content.len() as u64 > KEPT_TOTAL {
        return Ok(without(format!("more than {} MiB are kept already", KEPT_TOTAL >> 20)));
    }
    let (hash, bytes) = (Integrity::of(&content), content.len() as u64);
    let file = self::file(folder, hash);
    if file.read().is_none_or(|found| found != content) {
        file.write(&content).map_err(|error| StoreError::system(path(folder, hash), error))?;
        *total += bytes;
    }
    Ok(KeptFile { bytes, mode, hash: Some(hash), not_kept: None })
}

/// Describes what is moved, so that it can be recognized.
pub(super) fn moved(moved: Moved) -> MovedItem {
    match moved {
        Moved::Folder => MovedItem::Folder,
        Moved::Link(target) => MovedItem::Link { target: Integrity::of(&target) },
        Moved::File(Before { file, mode, bytes }) => {
            let mut content = Vec::new();
            let read = file
                .filter(|_| bytes <= KEPT_LIMIT)
                .and_then(|file| file.take(KEPT_LIMIT + 1).read_to_end(&mut content).ok());
            let hash = read
                .filter(|_| content.len() as u64 <= KEPT_LIMIT)
                .map(|_| Integrity::of(&content));
            MovedItem::File { bytes, mode, hash }
        }
    }
}

/// Returns the size of all large values and kept contents.
pub(super) fn total(folder: &Path) -> u64 {
    size_of(&folder.join(FOLDER))
}

/// Returns the size of all files in a folder.
fn size_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

/// Returns a kept content; `None` if it is missing or does not have its hash.
pub(super) fn kept(folder: &Path, hash: Integrity) -> Option<Vec<u8>> {
    file(folder, hash).read().filter(|content| Integrity::of(content) == hash)
}

/// Returns the JSON text of a value; `None` if it is missing or does not have its hash.
pub(super) fn read(folder: &Path, content: &Content) -> Option<String> {
    let text = match &content.json {
        Some(text) => text.clone(),
        None if content.erased => return None,
        None => String::from_utf8(file(folder, content.hash).read()?).ok()?,
    };
    (Integrity::of(text.as_bytes()) == content.hash).then_some(text)
}

/// Returns the JSON text of a value that is part of its record; `None` if it does not have its hash and length.
pub(super) fn inline(content: &Content) -> Option<&str> {
    let text = content.json.as_deref()?;
    let is_same =
        Integrity::of(text.as_bytes()) == content.hash && text.len() as u64 == content.bytes;
    is_same.then_some(text)
}

/// Returns whether the file of a large value or of a kept content is there. It was written before, with the right content.
pub(super) fn is_there(folder: &Path, hash: Integrity) -> bool {
    std::fs::symlink_metadata(path(folder, hash)).is_ok_and(|found| found.is_file())
}

/// Deletes the file of a large value or of a kept content; returns its size if there was one.
pub(super) fn delete(folder: &Path, hash: Integrity) -> Result<Option<u64>, StoreError> {
    let path = path(folder, hash);
    let size = std::fs::symlink_metadata(&path).ok().map(|found| found.len());
    let deleted = file(folder, hash).delete();
    deleted.map(|()| size).map_err(|error| StoreError::system(path, error))
}

/// Returns the path of a large value, for display.
pub(super) fn path(folder: &Path, hash: Integrity) -> std::path::PathBuf {
    folder.join(FOLDER).join(name_of_hash(hash))
}

fn file(folder: &Path, hash: Integrity) -> RecordFile {
    RecordFile::named(folder, FOLDER, name_of_hash(hash), LIMIT)
}
