//! The JSON Patch from one value to another.
//!
//! The common beginning and end of two arrays are skipped, and the rest is compared position
//! by position, which is linear. A shortest edit script would be quadratic.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::tools::ToolFailure;
use crate::tools::limits::Budget;

/// One operation of a JSON Patch.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(super) enum Operation {
    /// Adds a value.
    Add {
        /// The JSON Pointer of the value.
        path: String,
        /// The value.
        value: Value,
    },
    /// Removes a value.
    Remove {
        /// The JSON Pointer of the value.
        path: String,
    },
    /// Replaces a value.
    Replace {
        /// The JSON Pointer of the value.
        path: String,
        /// The value.
        value: Value,
    },
}

/// Returns the operations that turn `before` into `after`.
pub(super) fn compare(before: &Value, after: &Value) -> Result<Vec<Operation>, ToolFailure> {
    let mut comparison = Comparison {
        path: String::new(),
        operations: Vec::new(),
        // The keys of outer objects are repeated in every path within, so the patch can be
        // much larger than both values.
        budget: Budget::result(),
    };
    comparison.values(before, after)?;
    Ok(comparison.operations)
}

struct Comparison {
    path: String,
    operations: Vec<Operation>,
    budget: Budget,
}

impl Comparison {
    fn values(&mut self, before: &Value, after: &Value) -> Result<(), ToolFailure> {
        match (before, after) {
            (Value::Object(old), Value::Object(new)) => {
                for (key, old_value) in old {
                    let length = self.enter(key);
                    match new.get(key) {
                        Some(new_value) => self.values(old_value, new_value)?,
                        None => self.remove()?,
                    }
                    self.path.truncate(length);
                }
                for (key, new_value) in new {
                    if !old.contains_key(key) {
                        let length = self.enter(key);
                        self.add(new_value)?;
                        self.path.truncate(length);
                    }
                }
                Ok(())
            }
            (Value::Array(old), Value::Array(new)) => self.arrays(old, new),
            _ if before == after => Ok(()),
            _ => {
                self.budget.take(self.path.len())?;
                self.budget.take_value(after)?;
                self.operations
                    .push(Operation::Replace { path: self.path.clone(), value: after.clone() });
                Ok(())
            }
        }
    }

    fn arrays(&mut self, old: &[Value], new: &[Value]) -> Result<(), ToolFailure> {
        // Each level compares its items again, so the whole costs at most the size of the values
        // times their depth, which is limited.
        let start = old.iter().zip(new).take_while(|(o, n)| o == n).count();
        let (old, new) = (&old[start..], &new[start..]);
        // Counted after the common beginning is cut off. Otherwise an item could count for both,
        // for example in the change from `[1]` to `[1, 1]`.
        let same_end = old.iter().rev().zip(new.iter().rev()).take_while(|(o, n)| o == n).count();
        let (old, new) = (&old[..old.len() - same_end], &new[..new.len() - same_end]);
        let shared = old.len().min(new.len());
        for index in 0..shared {
            let length = self.enter(&(start + index).to_string());
            self.values(&old[index], &new[index])?;
            self.path.truncate(length);
        }
        // From the end, so that a removal does not shift the indices of the remaining ones.
        for index in (shared..old.len()).rev() {
            let length = self.enter(&(start + index).to_string());
            self.remove()?;
            self.path.truncate(length);
        }
        // In ascending order: `add` must not skip an index (RFC 6902, section 4.1).
        for (index, value) in new.iter().enumerate().skip(shared) {
            let length = self.enter(&(start + index).to_string());
            self.add(value)?;
            self.path.truncate(length);
        }
        Ok(())
    }

    fn add(&mut self, value: &Value) -> Result<(), ToolFailure> {
        self.budget.take(self.path.len())?;
        self.budget.take_value(value)?;
        self.operations.push(Operation::Add { path: self.path.clone(), value: value.clone() });
        Ok(())
    }

    fn remove(&mut self) -> Result<(), ToolFailure> {
        self.budget.take(self.path.len())?;
        self.operations.push(Operation::Remove { path: self.path.clone() });
        Ok(())
    }

    /// Appends a key to the path, and returns the path's previous length, to which the caller truncates it afterwards.
    fn enter(&mut self, key: &str) -> usize {
        let length = self.path.len();
        self.path.push('/');
        for character in key.chars() {
            // The two characters with a meaning in a pointer are escaped (RFC 6901, section 3).
            match character {
                '~' => self.path.push_str("~0"),
                '/' => self.path.push_str("~1"),
                other => self.path.push(other),
            }
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_patch_changes_before_to_after() {
        let values = [
            json!(null),
            json!(1),
            json!({}),
            json!([]),
            json!([1, 2, 3]),
            json!([1, 3]),
            json!([0, 1, 2, 3]),
            json!([{"a": 1}, {"b": [2]}]),
            json!([{"a": 1}, {"b": [2, {"c": 3}]}, 5, 6]),
            json!({"a/b": 1, "m~n": [1, 2], "": {"x": null}}),
            json!({"a/b": 2, "m~n": [2], "": {"x": 1, "y": {}}}),
        ];
        for before in &values {
            for after in &values {
                let operations = compare(before, after).expect("small");
                let patch: json_patch::Patch =
                    serde_json::from_value(json!(operations)).expect("a JSON Patch");
                let mut patched = before.clone();
                json_patch::patch(&mut patched, &patch).expect("it applies");
                assert_eq!(&patched, after, "{before} to {after}");
                assert_eq!(operations.is_empty(), before == after);
            }
        }
    }

    #[test]
    fn an_insertion_is_one_operation() {
        let before: Vec<u32> = (0..1_000).collect();
        let mut after = before.clone();
        after.insert(3, 7);
        let operations = compare(&json!(before), &json!(after)).expect("small");
        assert_eq!(json!(operations), json!([{"op": "add", "path": "/3", "value": 7}]));
    }

    #[test]
    fn long_keys_above_many_changes_are_refused() {
        let below = |n: u32| {
            let fields: serde_json::Map<String, Value> =
                (0..20_000).map(|i| (format!("k{i}"), json!(n))).collect();
            json!({"k".repeat(100_000): fields})
        };
        assert!(matches!(compare(&below(1), &below(2)), Err(ToolFailure::ResultTooLarge { .. })));
    }
}
