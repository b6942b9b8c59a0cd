//! The tools that select fields of objects.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tools::key_path::KeyPath;
use crate::tools::{NativeTool, ToolFailure};

/// Returns these tools.
pub(super) fn tools() -> Vec<NativeTool> {
    vec![
        NativeTool::new(
            "collections",
            "pick",
            "Keeps only the listed fields of an object, or of each object in a list.",
            pick,
        )
        .example(
            json!({"data": [{"a": 1, "b": 2}, {"b": 3}], "keys": ["a"]}),
            json!([{"a": 1}, {}]),
        ),
        NativeTool::new(
            "collections",
            "omit",
            "Removes the listed fields of an object, or of each object in a list.",
            omit,
        )
        .example(json!({"data": {"a": 1, "b": 2}, "keys": ["b"]}), json!({"a": 1})),
        NativeTool::new(
            "collections",
            "pluck",
            "Returns the value at a key path of each item; null if there is none.",
            pluck,
        )
        .example(json!({"items": [{"a": {"b": 1}}, {}], "by": "a.b"}), json!([1, null])),
    ]
}

/// Arguments of `collections:pick` and `collections:omit`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Keys {
    /// An object, or a list of objects.
    data: Value,
    /// The names of the fields.
    keys: HashSet<String>,
}

fn pick(input: Keys) -> Result<Value, ToolFailure> {
    retain(input.data, |key| input.keys.contains(key))
}

fn omit(input: Keys) -> Result<Value, ToolFailure> {
    retain(input.data, |key| !input.keys.contains(key))
}

/// Keeps the fields that `keep` selects. Iterating over the fields of the data, not over the names, is linear.
fn retain(mut data: Value, keep: impl Fn(&str) -> bool) -> Result<Value, ToolFailure> {
    match &mut data {
        Value::Object(fields) => fields.retain(|key, _| keep(key)),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let Value::Object(fields) = item else {
                    return Err(ToolFailure::InvalidArguments(format!(
                        "`data[{index}]` is not an object"
                    )));
                };
                fields.retain(|key, _| keep(key));
            }
        }
        _ => {
            return Err(ToolFailure::InvalidArguments(
                "`data` is neither an object nor a list of objects".to_owned(),
            ));
        }
    }
    Ok(data)
}

/// Arguments of `collections:pluck`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Pluck {
    /// The list.
    items: Vec<Value>,
    /// The dotted key path.
    by: KeyPath,
}

fn pluck(input: Pluck) -> Result<Vec<Value>, ToolFailure> {
    Ok(input.items.iter().map(|item| input.by.find_or_null(item).clone()).collect())
}
