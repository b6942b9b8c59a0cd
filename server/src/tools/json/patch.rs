//! Applies a JSON Patch within limits.
//!
//! Each `copy` can double a value, in size and in depth, and insertions and removals in a
//! long array are slow. So the cost of each operation is checked before it is applied.

use json_patch::PatchOperation;
use json_patch::jsonptr::Pointer;
use serde_json::Value;

use crate::tools::ToolFailure;
use crate::tools::limits::{Budget, MAX_DEPTH, is_deeper_than};

/// The maximum number of operations of one patch.
const MAX_OPERATIONS: usize = 1_000;

/// The maximum work of one patch: bytes visited, and a quarter for each array item moved.
const MAX_WORK: usize = 32 * 1024 * 1024;

/// Applies the operations in order; fails with the index of the first that cannot be applied.
pub(super) fn apply(mut target: Value, patch: Vec<Value>) -> Result<Value, ToolFailure> {
    // `test` and `replace` are charged nothing below, so only this limit bounds their number.
    if patch.len() > MAX_OPERATIONS {
        return Err(ToolFailure::InvalidArguments(format!(
            "`patch` has {} operations; at most {MAX_OPERATIONS} are allowed",
            patch.len()
        )));
    }
    let mut copied = Budget::result();
    let mut work = Budget::new(MAX_WORK);
    for (index, operation) in patch.into_iter().enumerate() {
        // Parsed one by one, so that an error names the index of the operation.
        let operation: PatchOperation = serde_json::from_value(operation)
            .map_err(|error| ToolFailure::InvalidArguments(format!("`patch[{index}]`: {error}")))?;
        check_cost(&target, &operation, &mut copied, &mut work)
            .map_err(|failure| at(index, failure))?;
        // The other function of the crate, `patch`, also records how to undo each operation. A
        // failed patch returns no value, so nothing has to be undone.
        json_patch::patch_unsafe(&mut target, std::slice::from_ref(&operation)).map_err(
            |error| ToolFailure::Failed(format!("`patch[{index}]` ({operation}): {}", error.kind)),
        )?;
    }
    Ok(target)
}

fn at(index: usize, failure: ToolFailure) -> ToolFailure {
    match failure {
        ToolFailure::Failed(message) => ToolFailure::Failed(format!("`patch[{index}]`: {message}")),
        other => other,
    }
}

/// Refuses an operation that would take too long, or make the value too large or too deep.
fn check_cost(
    target: &Value,
    operation: &PatchOperation,
    copied: &mut Budget,
    work: &mut Budget,
) -> Result<(), ToolFailure> {
    let too_slow =
        |_| ToolFailure::Failed("the patch moves too much data; split the patch".to_owned());
    // Inserting or removing an item moves the items after it.
    let mut charge_move = |pointer: &Pointer| {
        let parent = pointer.parent().and_then(|parent| parent.resolve(target).ok());
        // Objects cost nothing: serde_json removes a member by swapping in the last one. Neither
        // does a path that does not resolve, because the operation will fail.
        let length = parent.and_then(Value::as_array).map_or(0, Vec::len);
        work.take(length / 4).map_err(too_slow)
    };
    let depth_allowed = |pointer: &Pointer, value: &Value| {
        let above = pointer.count();
        if above > MAX_DEPTH || is_deeper_than(value, MAX_DEPTH - above) {
            return Err(ToolFailure::Failed(format!(
                "the value would nest deeper than {MAX_DEPTH} levels"
            )));
        }
        Ok(())
    };
    match operation {
        PatchOperation::Add(add) => {
            charge_move(&add.path)?;
            depth_allowed(&add.path, &add.value)
        }
        PatchOperation::Replace(replace) => depth_allowed(&replace.path, &replace.value),
        PatchOperation::Remove(remove) => charge_move(&remove.path),
        PatchOperation::Move(movement) => {
            charge_move(&movement.from)?;
            charge_move(&movement.path)?;
            if let Ok(value) = movement.from.resolve(target) {
                // Moving copies nothing, but measuring the depth visits the whole value.
                work.take_value(value).map_err(too_slow)?;
                depth_allowed(&movement.path, value)?;
            }
            Ok(())
        }
        PatchOperation::Copy(copy) => {
            charge_move(&copy.path)?;
            if let Ok(value) = copy.from.resolve(target) {
                // One budget for all copies: each one can double what the previous one made.
                copied.take_value(value)?;
                depth_allowed(&copy.path, value)?;
            }
            Ok(())
        }
        PatchOperation::Test(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(target: Value, patch: Value) -> Result<Value, ToolFailure> {
        apply(target, patch.as_array().expect("a list").clone())
    }

    #[test]
    fn operations_are_applied_in_order() {
        let patch = json!([
            {"op": "test", "path": "/a", "value": 1},
            {"op": "copy", "from": "/a", "path": "/b"},
            {"op": "move", "from": "/a", "path": "/c"},
            {"op": "replace", "path": "/b", "value": [1]},
            {"op": "add", "path": "/b/-", "value": 2},
            {"op": "remove", "path": "/b/0"},
        ]);
        assert_eq!(run(json!({"a": 1}), patch), Ok(json!({"b": [2], "c": 1})));
    }

    #[test]
    fn the_error_has_the_index_of_the_operation() {
        for (patch, expected) in [
            (json!([{"op": "remove", "path": "/x"}]), "patch[0]"),
            (json!([{"op": "add", "path": "/x", "value": 1}, {"op": "jump"}]), "patch[1]"),
            (json!([{"op": "test", "path": "/a", "value": 2}]), "patch[0]"),
            (json!([{"op": "add", "path": "no", "value": 2}]), "patch[0]"),
            (json!([1]), "patch[0]"),
        ] {
            let failure = run(json!({"a": 1}), patch).expect_err("it cannot apply");
            assert!(failure.to_string().contains(expected), "{failure}");
        }
    }

    #[test]
    fn repeated_copies_are_refused() {
        let wide: Vec<Value> = (0..1_000)
            .map(|i| json!({"op": "copy", "from": "", "path": format!("/k{i}")}))
            .collect();
        let failure = apply(json!({"a": "x".repeat(100_000)}), wide).expect_err("too large");
        assert!(matches!(failure, ToolFailure::ResultTooLarge { .. } | ToolFailure::Failed(_)));
        let mut place = String::new();
        let mut deep = Vec::new();
        for _ in 0..40 {
            place.push_str("/a");
            deep.push(json!({"op": "copy", "from": "", "path": place}));
        }
        let failure = apply(json!({}), deep).expect_err("too deep");
        assert!(failure.to_string().contains("deeper"), "{failure}");
    }

    #[test]
    fn repeated_moves_of_a_long_array_are_refused() {
        let patch: Vec<Value> =
            (0..1_000).map(|_| json!({"op": "move", "from": "", "path": ""})).collect();
        assert!(apply(json!(vec![0; 400_000]), patch).is_err());
        let patch: Vec<Value> = (0..1_001).map(|_| json!({"op": "remove", "path": "/0"})).collect();
        assert!(apply(json!(vec![0; 400_000]), patch).is_err());
    }
}
