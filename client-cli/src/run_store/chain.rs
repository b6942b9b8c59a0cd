//! The chain: the hash of each record covers the one before it.

use std::collections::HashMap;

use protocol::Integrity;

use super::record::{ErasedRecord, Record, ValuesErased};
use super::values::erased_files;

/// Returns the hash of a record: it covers the hash before it, the record's number and its text.
pub(super) fn chained(before: Integrity, seq: i64, body: &str) -> Integrity {
    let mut bytes = Vec::with_capacity(40 + body.len());
    bytes.extend_from_slice(&before.into_bytes());
    bytes.extend_from_slice(&seq.to_be_bytes());
    bytes.extend_from_slice(body.as_bytes());
    Integrity::of(&bytes)
}

/// What is stated of erased records, by their numbers: the run, and the record.
pub(super) type Erased = HashMap<i64, (String, ErasedRecord)>;

/// Returns what an erasure states, as entries of [`Erased`].
pub(super) fn stated(erasure: ValuesErased) -> impl Iterator<Item = (i64, (String, ErasedRecord))> {
    let run = erasure.run;
    erasure.records.into_iter().map(move |record| (record.seq, (run.clone(), record)))
}

/// Returns the hash of a record that follows another one: it is computed, or, for one that was erased, stated.
///
/// # Errors
/// Returns what is wrong with it, as the rest of a sentence.
pub(super) fn hash_of(
    before: Integrity,
    seq: i64,
    body: &str,
    its_hash: &[u8],
    erased: Option<&(String, ErasedRecord)>,
) -> Result<Integrity, &'static str> {
    let computed = chained(before, seq, body);
    let is_original = *its_hash == computed.into_bytes();
    match erased {
        None if is_original => Ok(computed),
        None if is_erased(body) => Err("was erased, and no record states that"),
        None => Err("was changed, inserted or moved: its hash does not match"),
        Some(_) if is_original => Err("was erased, and its values are there again"),
        Some((_, erased)) => {
            let is_stated = *its_hash == erased.hash.into_bytes()
                && before == erased.before
                && Integrity::of(body.as_bytes()) == erased.left;
            is_stated.then_some(erased.hash).ok_or("was erased, and is not what was left of it")
        }
    }
}

/// Returns whether a text is what is left of a record.
fn is_erased(body: &str) -> bool {
    let record = serde_json::from_str::<Record>(body);
    record.is_ok_and(|record| erased_files(&record).is_some())
}
