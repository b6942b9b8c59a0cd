//! `collections:*`: sorting, grouping, splitting and combining lists and objects.
//!
//! Except for sorting, every tool is linear in its input. Equality is by value: the order of
//! keys does not matter, and `1` equals `1.0`.

mod group;
mod pick;
mod select;

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::key_path::{KeyPath, find_by, identity, order};
use super::number::Real;
use super::{NativeTool, ToolFailure};

/// The maximum number of items of a range.
const MAX_RANGE: usize = 100_000;

/// Returns the tools of this namespace.
pub(super) fn tools() -> Vec<NativeTool> {
    let mut tools = vec![
        NativeTool::new(
            "collections",
            "sort",
            "Sorts a list by its items or by key paths, in their order of precedence; equal items keep their order.",
            sort,
        )
        .example(json!({"items": [3, 1, 2]}), json!([1, 2, 3]))
        .example(
            json!({"items": [{"n": 1}, {"n": 2}], "by": "n", "order": "descending"}),
            json!([{"n": 2}, {"n": 1}]),
        ),
        NativeTool::new(
            "collections",
            "unique",
            "Removes duplicates: keeps the first of equal items, or of items with an equal key.",
            unique,
        )
        .example(json!({"items": [1, 1.0, "1", 2]}), json!([1, "1", 2])),
        NativeTool::new("collections", "chunk", "Splits a list into lists of a given size.", chunk)
            .example(json!({"items": [1, 2, 3], "size": 2}), json!([[1, 2], [3]])),
        NativeTool::new(
            "collections",
            "flatten",
            "Replaces inner lists by their items, one level deep or deeper.",
            flatten,
        )
        .example(json!({"items": [1, [2, [3]]]}), json!([1, 2, [3]]))
        .example(json!({"items": [1, [2, [3]]], "depth": 2}), json!([1, 2, 3])),
        NativeTool::new(
            "collections",
            "zip",
            "Combines the items at the same position of several lists, up to the end of the shortest.",
            zip,
        )
        .example(json!({"lists": [[1, 2], ["a", "b", "c"]]}), json!([[1, "a"], [2, "b"]])),
        NativeTool::new(
            "collections",
            "range",
            "Returns the numbers from start up to, but not including, end; at most 100,000.",
            range,
        )
        .example(json!({"end": 3}), json!([0, 1, 2]))
        .example(json!({"start": 1, "end": 0, "step": -0.5}), json!([1, 0.5])),
        NativeTool::new(
            "collections",
            "intersect",
            "Returns the distinct items that all lists contain.",
            intersect,
        )
        .example(json!({"lists": [[1, 2, 3], [3, 2, 5]]}), json!([2, 3])),
        NativeTool::new(
            "collections",
            "difference",
            "Returns the items of a list that another does not contain.",
            difference,
        )
        .example(json!({"items": [1, 2, 3], "exclude": [2]}), json!([1, 3])),
        NativeTool::new(
            "collections",
            "union",
            "Returns the distinct items of several lists.",
            union,
        )
        .example(json!({"lists": [[1, 2], [2, 3]]}), json!([1, 2, 3])),
    ];
    tools.extend(group::tools());
    tools.extend(pick::tools());
    tools.extend(select::tools());
    tools
}

/// One key path or several.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a key path of 1 to 1024 bytes, or a list of at most 8")]
enum KeyPaths {
    One(KeyPath),
    Several(#[schemars(length(max = 8))] Vec<KeyPath>),
}

/// A direction of sorting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Direction {
    #[default]
    Ascending,
    Descending,
}

/// Arguments of `collections:sort`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Sort {
    /// The list.
    items: Vec<Value>,
    /// What to sort by: a dotted key path, or several; the item itself if omitted.
    #[serde(default)]
    by: Option<KeyPaths>,
    /// The direction.
    #[serde(default)]
    order: Direction,
}

fn sort(input: Sort) -> Result<Vec<Value>, ToolFailure> {
    let paths = match input.by {
        None => Vec::new(),
        Some(KeyPaths::One(path)) => vec![path],
        Some(KeyPaths::Several(paths)) => paths,
    };
    // The keys of all items are copied, so their number multiplies the memory.
    if paths.len() > 8 {
        return Err(ToolFailure::InvalidArguments("`by` has more than 8 key paths".to_owned()));
    }
    let keys = |item: &Value| -> Vec<Value> {
        paths.iter().map(|path| path.find_or_null(item).clone()).collect()
    };
    // The keys are looked up once per item, not once per comparison.
    let mut items: Vec<(Vec<Value>, Value)> =
        input.items.into_iter().map(|item| (keys(&item), item)).collect();
    items.sort_by(|(left_keys, left), (right_keys, right)| {
        let ordering = if paths.is_empty() {
            order(left, right)
        } else {
            let pairs = left_keys.iter().zip(right_keys);
            pairs.fold(std::cmp::Ordering::Equal, |so_far, (left, right)| {
                so_far.then_with(|| order(left, right))
            })
        };
        match input.order {
            Direction::Ascending => ordering,
            // Reversing the sorted list instead would also reverse equal items.
            Direction::Descending => ordering.reverse(),
        }
    });
    Ok(items.into_iter().map(|(_, item)| item).collect())
}

/// Arguments of `collections:unique`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Unique {
    /// The list.
    items: Vec<Value>,
    /// The dotted key path of the value that must be unique; the whole item if omitted.
    #[serde(default)]
    by: Option<KeyPath>,
}

fn unique(input: Unique) -> Result<Vec<Value>, ToolFailure> {
    let mut seen = HashSet::new();
    let mut items = input.items;
    // By identity, because `==` of serde_json distinguishes `1` from `1.0`.
    items.retain(|item| seen.insert(identity(find_by(input.by.as_ref(), item))));
    Ok(items)
}

/// Arguments of `collections:chunk`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Chunk {
    /// The list.
    items: Vec<Value>,
    /// The number of items of each list except the last.
    #[schemars(range(min = 1))]
    size: usize,
}

fn chunk(input: Chunk) -> Result<Vec<Vec<Value>>, ToolFailure> {
    if input.size == 0 {
        return Err(ToolFailure::InvalidArguments("`size` is at least 1".to_owned()));
    }
    Ok(input.items.chunks(input.size).map(<[Value]>::to_vec).collect())
}

/// Arguments of `collections:flatten`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Flatten {
    /// The list.
    items: Vec<Value>,
    /// The number of levels to remove; 1 if omitted.
    #[serde(default = "one_level")]
    depth: usize,
}

fn one_level() -> usize {
    1
}

fn flatten(input: Flatten) -> Result<Vec<Value>, ToolFailure> {
    // The recursion is bounded by the depth of the arguments, which was checked before.
    fn push(items: Vec<Value>, depth: usize, out: &mut Vec<Value>) {
        for item in items {
            match item {
                Value::Array(inner) if depth > 0 => push(inner, depth - 1, out),
                other => out.push(other),
            }
        }
    }
    let mut flat = Vec::new();
    push(input.items, input.depth, &mut flat);
    Ok(flat)
}

/// Several lists.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Lists {
    /// The lists.
    lists: Vec<Vec<Value>>,
}

fn zip(input: Lists) -> Result<Vec<Vec<Value>>, ToolFailure> {
    let shortest = input.lists.iter().map(Vec::len).min().unwrap_or(0);
    let mut lists: Vec<_> = input.lists.into_iter().map(Vec::into_iter).collect();
    Ok((0..shortest).map(|_| lists.iter_mut().filter_map(Iterator::next).collect()).collect())
}

/// Arguments of `collections:range`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Range {
    /// The first number; 0 if omitted.
    #[serde(default)]
    start: f64,
    /// The number to stop before.
    end: f64,
    /// The distance from one number to the next; 1 if omitted.
    #[serde(default = "one")]
    step: f64,
}

fn one() -> f64 {
    1.0
}

fn range(input: Range) -> Result<Vec<Real>, ToolFailure> {
    if input.step == 0.0 {
        return Err(ToolFailure::InvalidArguments("`step` is 0".to_owned()));
    }
    let count = ((input.end - input.start) / input.step).ceil();
    #[expect(clippy::cast_precision_loss, reason = "a small constant")]
    if count.is_nan() || count > MAX_RANGE as f64 {
        return Err(ToolFailure::InvalidArguments(format!(
            "the range has more than {MAX_RANGE} numbers"
        )));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an integer in range; a negative one becomes 0"
    )]
    let count = count as u32;
    // Multiplied instead of added repeatedly, so that rounding errors do not accumulate.
    (0..count)
        .map(|index| {
            Real::new(input.start + f64::from(index) * input.step, "a number of the range")
        })
        .collect()
}

fn intersect(input: Lists) -> Result<Vec<Value>, ToolFailure> {
    let mut lists = input.lists.into_iter();
    // The items and their order come from the first list.
    let mut kept = lists.next().unwrap_or_default();
    let mut seen = HashSet::new();
    kept.retain(|item| seen.insert(identity(item)));
    let mut shared = seen;
    for list in lists {
        let these: HashSet<String> = list.iter().map(identity).collect();
        shared.retain(|item| these.contains(item));
    }
    kept.retain(|item| shared.contains(&identity(item)));
    Ok(kept)
}

/// Arguments of `collections:difference`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Difference {
    /// The list.
    items: Vec<Value>,
    /// The items to exclude.
    exclude: Vec<Value>,
}

fn difference(input: Difference) -> Result<Vec<Value>, ToolFailure> {
    let exclude: HashSet<String> = input.exclude.iter().map(identity).collect();
    let mut items = input.items;
    items.retain(|item| !exclude.contains(&identity(item)));
    Ok(items)
}

fn union(input: Lists) -> Result<Vec<Value>, ToolFailure> {
    let mut items: Vec<Value> = input.lists.into_iter().flatten().collect();
    let mut seen = HashSet::new();
    items.retain(|item| seen.insert(identity(item)));
    Ok(items)
}

#[cfg(test)]
mod tests;
