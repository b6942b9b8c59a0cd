//! What happens to the store itself: its beginning, where it ends, and what was erased in it.

use protocol::Integrity;
use serde::{Deserialize, Serialize};

/// The start of the store; the first record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreBegan {
    /// The time.
    pub(crate) at: String,
    /// A random id, which tells this store from one that was at the same place before.
    pub(crate) store: String,
    /// The stores that were at the same place before, as their ids and the numbers of their last records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) after: Vec<String>,
}

/// The first use of a store that was moved or copied here, or whose known end was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreAdopted {
    /// The time.
    pub(crate) at: String,
}

/// A difference between the end of the store and the end that `pml` last wrote here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndDiffered {
    /// When it was noticed.
    pub(crate) at: String,
    /// The number of the last record that `pml` wrote here.
    pub(crate) last: i64,
    /// The number of the last record that was found.
    pub(crate) found: i64,
    /// The store that `pml` last wrote here, if it is not this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<String>,
}

/// The erasure of values. The texts of the records were replaced in the same transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ValuesErased {
    /// The time.
    pub(crate) at: String,
    /// The run's id.
    pub(crate) run: String,
    /// The call whose values were erased; `None` for all values of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<String>,
    /// The records that had the values.
    pub(crate) records: Vec<ErasedRecord>,
}

/// A record whose text was replaced. Its hash can no longer be computed, so it is stated here, with what it follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErasedRecord {
    /// Its number.
    pub(crate) seq: i64,
    /// The hash of the record before it.
    pub(crate) before: Integrity,
    /// Its hash, which covered the text with the values.
    pub(crate) hash: Integrity,
    /// The hash of the text that is left.
    pub(crate) left: Integrity,
}
