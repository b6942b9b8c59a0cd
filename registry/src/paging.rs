//! Paging of all lists: the total, the cut at the end of a page, and opaque cursors.

use serde::Serialize;
use utoipa::ToSchema;

/// The largest exact total.
pub(crate) const EXACT_TOTAL: i64 = 10_000;

/// The number of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Total {
    /// An exact number.
    Total(u64),
    /// A lower bound.
    TotalAtLeast(u64),
}

impl Total {
    /// Interprets a count that was limited to one above [`EXACT_TOTAL`].
    pub(crate) fn of(counted: i64) -> Self {
        match counted {
            counted if counted > EXACT_TOTAL => Self::TotalAtLeast(EXACT_TOTAL.unsigned_abs()),
            counted => Self::Total(counted.unsigned_abs()),
        }
    }
}

/// Truncates `items`, which were read with one item more than `limit`; returns the cursor of the next page, if any.
pub(crate) fn cut<T>(
    items: &mut Vec<T>,
    limit: usize,
    cursor: impl Fn(&T) -> String,
) -> Option<String> {
    let more = items.len() > limit;
    items.truncate(limit);
    items.last().filter(|_| more).map(cursor)
}

/// Encodes a cursor opaquely, so that clients do not depend on its form.
pub(crate) fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes the output of [`hex`].
pub(crate) fn unhex(text: &str) -> Option<String> {
    // In other text, the slices below could split a character, which panics. The length bounds the
    // work for a cursor that a client made up.
    if !text.is_ascii() || !text.len().is_multiple_of(2) || text.len() > 4_096 {
        return None;
    }
    let bytes: Result<Vec<u8>, _> = (0..text.len() / 2)
        .map(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16))
        .collect();
    String::from_utf8(bytes.ok()?).ok()
}
