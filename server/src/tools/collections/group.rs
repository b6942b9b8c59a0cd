//! The tools that group items by a key.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::math;
use crate::tools::key_path::{KeyPath, find_by};
use crate::tools::number::Real;
use crate::tools::{NativeTool, ToolFailure};

/// Returns these tools.
pub(super) fn tools() -> Vec<NativeTool> {
    vec![
        NativeTool::new(
            "collections",
            "group_by",
            "Groups items into an object of lists, by the text of a key; a missing key counts as `null`.",
            group_by,
        )
        .example(
            json!({"items": [{"t": "a", "n": 1}, {"t": "b", "n": 2}, {"t": "a", "n": 3}], "by": "t"}),
            json!({"a": [{"t": "a", "n": 1}, {"t": "a", "n": 3}], "b": [{"t": "b", "n": 2}]}),
        ),
        NativeTool::new(
            "collections",
            "count_by",
            "Counts items by the text of a key, or of the item itself.",
            count_by,
        )
        .example(json!({"items": ["a", "b", "a"]}), json!({"a": 2, "b": 1})),
        NativeTool::new(
            "collections",
            "key_by",
            "Converts a list to an object by the text of a key; of items with equal keys, the last one is kept.",
            key_by,
        )
        .example(
            json!({"items": [{"id": 7, "n": 1}], "by": "id"}),
            json!({"7": {"id": 7, "n": 1}}),
        ),
        NativeTool::new(
            "collections",
            "sum_by",
            "Adds up the numbers at a key path, in total or for each group.",
            sum_by,
        )
        .example(json!({"items": [{"n": 1}, {"n": 2.5}], "by": "n"}), json!(3.5))
        .example(
            json!({"items": [{"t": "a", "n": 1}, {"t": "b", "n": 2}, {"t": "a", "n": 3}], "by": "n", "group": "t"}),
            json!({"a": 4, "b": 2}),
        ),
    ]
}

/// Returns the text of a key: texts unchanged, other values as JSON.
fn key_text(key: &Value) -> String {
    match key {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Arguments of `collections:group_by` and `collections:key_by`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct By {
    /// The list.
    items: Vec<Value>,
    /// The dotted key path.
    by: KeyPath,
}

fn group_by(input: By) -> Result<IndexMap<String, Vec<Value>>, ToolFailure> {
    let mut groups: IndexMap<String, Vec<Value>> = IndexMap::new();
    for item in input.items {
        groups.entry(key_text(input.by.find_or_null(&item))).or_default().push(item);
    }
    Ok(groups)
}

fn key_by(input: By) -> Result<Map<String, Value>, ToolFailure> {
    let entries = input.items.into_iter();
    Ok(entries.map(|item| (key_text(input.by.find_or_null(&item)), item)).collect())
}

/// Arguments of `collections:count_by`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CountBy {
    /// The list.
    items: Vec<Value>,
    /// The dotted key path; the item itself if omitted.
    #[serde(default)]
    by: Option<KeyPath>,
}

fn count_by(input: CountBy) -> Result<IndexMap<String, usize>, ToolFailure> {
    let mut counts: IndexMap<String, usize> = IndexMap::new();
    for item in &input.items {
        *counts.entry(key_text(find_by(input.by.as_ref(), item))).or_default() += 1;
    }
    Ok(counts)
}

/// Arguments of `collections:sum_by`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SumBy {
    /// The list.
    items: Vec<Value>,
    /// The dotted key path of the numbers; the item itself if omitted.
    #[serde(default)]
    by: Option<KeyPath>,
    /// The dotted key path of the groups; one total if omitted.
    #[serde(default)]
    group: Option<KeyPath>,
}

/// One sum, or one for each group.
#[derive(serde::Serialize, JsonSchema)]
#[serde(untagged)]
enum Sums {
    All(Real),
    ByGroup(IndexMap<String, Real>),
}

fn sum_by(input: SumBy) -> Result<Sums, ToolFailure> {
    let mut groups: IndexMap<String, Vec<f64>> = IndexMap::new();
    for (index, item) in input.items.iter().enumerate() {
        let number = match find_by(input.by.as_ref(), item) {
            // A null counts as 0, as in SQL's `sum`.
            Value::Null => 0.0,
            Value::Number(number) => number.as_f64().unwrap_or_default(),
            _ => {
                return Err(ToolFailure::Failed(format!(
                    "`items[{index}]` has no number at that key; filter it out or use another key"
                )));
            }
        };
        let group = input.group.as_ref().map(|path| key_text(path.find_or_null(item)));
        groups.entry(group.unwrap_or_default()).or_default().push(number);
    }
    let sum = |numbers: &[f64]| Real::new(math::sum(numbers.iter().copied()), "the sum");
    if input.group.is_none() {
        // All numbers are under one key, and without any item there is none.
        return Ok(Sums::All(sum(groups.values().next().map_or(&[], Vec::as_slice))?));
    }
    let sums = groups.iter().map(|(group, numbers)| Ok((group.clone(), sum(numbers)?)));
    Ok(Sums::ByGroup(sums.collect::<Result<_, ToolFailure>>()?))
}
