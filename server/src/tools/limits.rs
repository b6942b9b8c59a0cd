//! The limits of native tools, and helpers that enforce them.

use std::io::{self, Write};

use serde_json::Value;

use super::ToolFailure;

/// The maximum size of a call's arguments as JSON, in bytes.
pub(super) const MAX_ARGUMENT_BYTES: usize = 1024 * 1024;

/// The maximum size of a result as JSON, in bytes.
pub(super) const MAX_RESULT_BYTES: usize = 8 * 1024 * 1024;

/// The maximum nesting depth of a tool's arguments and results.
///
/// `serde_json` parses 128 levels; the difference is for the messages around a value.
pub(super) const MAX_DEPTH: usize = 100;

/// The maximum size of a key path, a pattern or another small text argument, in bytes.
///
/// Such a text is applied to every item, so its length multiplies the cost.
pub(super) const MAX_PATH_BYTES: usize = 1024;

/// Returns whether a value nests deeper than `levels`.
pub(super) fn is_deeper_than(value: &Value, levels: usize) -> bool {
    // The recursion stops at `levels`, so the stack is bounded whatever the depth of the value.
    let Some(below) = levels.checked_sub(1) else {
        return value.is_array() || value.is_object();
    };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper_than(item, below)),
        Value::Object(fields) => fields.values().any(|field| is_deeper_than(field, below)),
        _ => false,
    }
}

/// Returns whether a value fits into `limit` bytes as JSON.
pub(super) fn fits(value: &Value, limit: usize) -> bool {
    // Serializing into a budget stops at the limit, and allocates nothing.
    let mut budget = Budget::new(limit);
    serde_json::to_writer(&mut budget, value).is_ok()
}

/// Fails with `InvalidArguments` when a small text argument is too long.
pub(super) fn check_path(field: &str, text: &str) -> Result<(), ToolFailure> {
    if text.len() > MAX_PATH_BYTES {
        return Err(ToolFailure::InvalidArguments(format!(
            "`{field}` has {} bytes; at most {MAX_PATH_BYTES} are allowed",
            text.len()
        )));
    }
    Ok(())
}

/// A number of bytes that may still be used.
///
/// As a writer it counts the bytes and discards them.
pub(super) struct Budget {
    left: usize,
    limit: usize,
}

impl Budget {
    /// Starts a budget of `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { left: limit, limit }
    }

    /// Starts the budget of one tool result.
    pub(super) fn result() -> Self {
        Self::new(MAX_RESULT_BYTES)
    }

    /// Takes `bytes` from the budget.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), ToolFailure> {
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or(ToolFailure::ResultTooLarge { limit: self.limit })?;
        Ok(())
    }

    /// Takes the size of a value as JSON, before the value is copied.
    pub(super) fn take_value(&mut self, value: &Value) -> Result<(), ToolFailure> {
        let limit = self.limit;
        serde_json::to_writer(self, value).map_err(|_full| ToolFailure::ResultTooLarge { limit })
    }
}

impl Write for Budget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes.len()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A text that cannot become larger than a result.
pub(super) struct BoundedText {
    text: Vec<u8>,
    budget: Budget,
}

impl BoundedText {
    /// Starts an empty text.
    pub(super) fn new() -> Self {
        Self { text: Vec::new(), budget: Budget::result() }
    }

    /// Appends to the text.
    pub(super) fn push(&mut self, text: &str) -> Result<(), ToolFailure> {
        self.budget.take(text.len())?;
        self.text.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Returns the text.
    pub(super) fn finish(self) -> Result<String, ToolFailure> {
        // Cannot fail: `push` takes texts, and serde_json writes UTF-8, although as bytes.
        String::from_utf8(self.text)
            .map_err(|_error| ToolFailure::Failed("the result is not UTF-8".to_owned()))
    }
}

impl Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.budget.take(bytes.len()).map_err(io::Error::other)?;
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn depth_is_the_number_of_nested_containers() {
        assert!(!is_deeper_than(&json!(1), 0));
        assert!(is_deeper_than(&json!([]), 0));
        assert!(!is_deeper_than(&json!([[1]]), 2));
        assert!(is_deeper_than(&json!({"a": {"b": []}}), 2));
    }

    #[test]
    fn size_is_the_length_of_the_json_text() {
        let value = json!({"a": [1, "ä\n"]});
        let bytes = value.to_string().len();
        assert!(fits(&value, bytes));
        assert!(!fits(&value, bytes - 1));
    }

    #[test]
    fn a_bounded_text_refuses_to_grow_beyond_its_limit() {
        let mut text = BoundedText::new();
        let block = "x".repeat(MAX_RESULT_BYTES / 2);
        assert_eq!(text.push(&block), Ok(()));
        assert_eq!(text.push(&block), Ok(()));
        assert_eq!(text.push("x"), Err(ToolFailure::ResultTooLarge { limit: MAX_RESULT_BYTES }));
        assert_eq!(text.finish().map(|t| t.len()), Ok(MAX_RESULT_BYTES));
    }
}
