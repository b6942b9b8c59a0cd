//! The values in records: without the keys in use, and large ones as files named after their hash.

use std::path::Path;

use protocol::redaction::keys_in_use;
use protocol::{Integrity, canonical_json};
use serde_json::Value;

use super::StoreError;
use super::record::Content;
use crate::files::records::{RecordFile, name_of_hash};

/// The folder of large values, in that of the store.
const FOLDER: &str = "contents";
/// The length of the largest text that is part of its record, in bytes.
const INLINE_LIMIT: usize = 16 * 1024;
/// The length of the largest value that is stored, in bytes. A result of a tool has at most 8 MiB, and escapes can
/// make its JSON text six times as long.
const LIMIT: usize = 64 * 1024 * 1024;

/// Prepares a value for a record.
pub(super) fn store(folder: &Path, value: &Value) -> Result<Content, StoreError> {
    // Keys are removed before anything is hashed: a hash would confirm a guess of the key.
    let text = keys_in_use().text(&canonical_json(value.clone())).into_owned();
    let (hash, bytes) = (Integrity::of(text.as_bytes()), text.len() as u64);
    if text.len() <= INLINE_LIMIT {
        return Ok(Content { hash, bytes, json: Some(text) });
    }
    let file = file(folder, hash);
    // A file of that name with other bytes was cut off or changed: it is replaced.
    if file.read().is_none_or(|found| found != text.as_bytes()) {
        file.write(text.as_bytes())
            .map_err(|error| StoreError::system(path(folder, hash), error))?;
    }
    Ok(Content { hash, bytes, json: None })
}

/// Returns the JSON text of a value; `None` if it is missing or does not have its hash.
pub(super) fn read(folder: &Path, content: &Content) -> Option<String> {
    let text = match &content.json {
        Some(text) => text.clone(),
        None => String::from_utf8(file(folder, content.hash).read()?).ok()?,
    };
    (Integrity::of(text.as_bytes()) == content.hash).then_some(text)
}

/// Returns the path of a large value, for display.
pub(super) fn path(folder: &Path, hash: Integrity) -> std::path::PathBuf {
    folder.join(FOLDER).join(name_of_hash(hash))
}

fn file(folder: &Path, hash: Integrity) -> RecordFile {
    RecordFile::named(folder, FOLDER, name_of_hash(hash), LIMIT)
}
