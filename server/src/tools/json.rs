//! `json:*`: parsing, serializing, querying, merging and comparing JSON.

mod diff;
mod patch;
mod path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Value, json};

use super::limits::{BoundedText, Budget, MAX_DEPTH, MAX_RESULT_BYTES, check_path, is_deeper_than};
use super::{NativeTool, ToolFailure};

/// Returns the tools of this namespace.
pub(super) fn tools() -> Vec<NativeTool> {
    vec![
        NativeTool::new(
            "json",
            "parse",
            "Reads a JSON text and returns its value. Errors name the line and column.",
            parse,
        )
        .example(json!({"data": "{\"a\": [1, 2]}"}), json!({"a": [1, 2]})),
        NativeTool::new(
            "json",
            "stringify",
            "Serializes a value as JSON text, compact or indented, optionally with sorted keys.",
            stringify,
        )
        .example(json!({"value": {"b": 1, "a": [2]}}), json!("{\"b\":1,\"a\":[2]}"))
        .example(
            json!({"value": {"b": 1, "a": 2}, "indent": 2, "sort_keys": true}),
            json!("{\n  \"a\": 2,\n  \"b\": 1\n}"),
        ),
        NativeTool::new(
            "json",
            "query",
            "Selects values with a JSONPath (RFC 9535) and returns them as a list.",
            query,
        )
        .example(
            json!({"data": {"books": [{"title": "A", "price": 5}, {"title": "B", "price": 20}]},
                   "path": "$.books[?@.price < 10].title"}),
            json!(["A"]),
        ),
        NativeTool::new(
            "json",
            "get",
            "Returns the value at a JSON Pointer (RFC 6901), or the default.",
            get,
        )
        .example(json!({"data": {"a": [7, 8]}, "pointer": "/a/1"}), json!(8))
        .example(json!({"data": {}, "pointer": "/a", "default": 0}), json!(0)),
        NativeTool::new(
            "json",
            "merge",
            "Applies a JSON Merge Patch (RFC 7396): objects are merged, null removes a field, other values replace it.",
            merge,
        )
        .example(
            json!({"target": {"a": 1, "b": {"c": 2}}, "patch": {"a": null, "b": {"d": 3}}}),
            json!({"b": {"c": 2, "d": 3}}),
        ),
        NativeTool::new(
            "json",
            "diff",
            "Compares two values and returns the JSON Patch (RFC 6902) that changes one to the other.",
            difference,
        )
        .example(
            json!({"before": {"a": 1, "b": [1, 2]}, "after": {"a": 2, "b": [1, 2, 3]}}),
            json!([
                {"op": "replace", "path": "/a", "value": 2},
                {"op": "add", "path": "/b/2", "value": 3},
            ]),
        ),
        NativeTool::new(
            "json",
            "patch",
            "Applies a JSON Patch (RFC 6902) of at most 1,000 operations; if one fails, none is applied.",
            apply_patch,
        )
        .example(
            json!({"target": {"a": 1}, "patch": [{"op": "add", "path": "/b", "value": [2]}]}),
            json!({"a": 1, "b": [2]}),
        ),
    ]
}

/// Arguments of `json:parse`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Parse {
    /// The JSON text.
    data: String,
}

fn parse(input: Parse) -> Result<Value, ToolFailure> {
    // serde_json stops at 128 levels by itself.
    let value: Value = serde_json::from_str(&input.data)
        .map_err(|error| ToolFailure::Failed(format!("`data` is not JSON: {error}")))?;
    if is_deeper_than(&value, MAX_DEPTH) {
        return Err(ToolFailure::Failed(format!("`data` nests deeper than {MAX_DEPTH} levels")));
    }
    Ok(value)
}

/// Arguments of `json:stringify`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Stringify {
    /// The value to serialize.
    value: Value,
    /// The number of spaces per level; 0 for a single line.
    #[serde(default)]
    #[schemars(range(max = 10))]
    indent: u8,
    /// Whether the keys of all objects are sorted.
    #[serde(default)]
    sort_keys: bool,
}

fn stringify(mut input: Stringify) -> Result<String, ToolFailure> {
    // Arguments are not validated against the schema, which has the same maximum.
    if input.indent > 10 {
        return Err(ToolFailure::InvalidArguments("`indent` can be at most 10".to_owned()));
    }
    if input.sort_keys {
        input.value.sort_all_objects();
    }
    let mut text = BoundedText::new();
    let written = if input.indent == 0 {
        serde_json::to_writer(&mut text, &input.value)
    } else {
        let spaces = " ".repeat(input.indent.into());
        let formatter = PrettyFormatter::with_indent(spaces.as_bytes());
        input.value.serialize(&mut Serializer::with_formatter(&mut text, formatter))
    };
    // Every `Value` can be written as JSON, so only the limit of the text can be the reason.
    written.map_err(|_full| ToolFailure::ResultTooLarge { limit: MAX_RESULT_BYTES })?;
    text.finish()
}

/// Arguments of `json:query`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Query {
    /// The value to query.
    data: Value,
    /// The JSONPath, for example `$.items[?@.price < 10].name`.
    path: String,
}

fn query(input: Query) -> Result<Vec<Value>, ToolFailure> {
    check_path("path", &input.path)?;
    let selected = path::select(&input.path, &input.data)?;
    // A value can be selected together with its container, so the copies can be many times larger than the data.
    let mut budget = Budget::result();
    for value in &selected {
        budget.take_value(value)?;
    }
    Ok(selected.into_iter().cloned().collect())
}

/// Arguments of `json:get`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Get {
    /// The value that contains it.
    data: Value,
    /// The JSON Pointer, for example `/items/0/name`; empty for the whole value.
    pointer: String,
    /// The result if there is no value at the pointer; if omitted, that is an error.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Value")]
    default: Option<Value>,
}

/// Distinguishes an explicit `null` from an omitted field.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn get(mut input: Get) -> Result<Value, ToolFailure> {
    // `pointer_mut` returns `None` for such a text, and `default` would hide the mistake.
    if !input.pointer.is_empty() && !input.pointer.starts_with('/') {
        return Err(ToolFailure::InvalidArguments(
            "`pointer` must start with `/`, or be empty for the whole value".to_owned(),
        ));
    }
    match input.data.pointer_mut(&input.pointer) {
        // Taken instead of cloned: the rest of the data is dropped anyway.
        Some(value) => Ok(value.take()),
        None => input.default.ok_or_else(|| {
            ToolFailure::Failed(
                "`data` has no value at `pointer`; set `default` to allow that".to_owned(),
            )
        }),
    }
}

/// Arguments of `json:merge`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Merge {
    /// The value to change.
    target: Value,
    /// The merge patch.
    patch: Value,
}

fn merge(mut input: Merge) -> Result<Value, ToolFailure> {
    // Needs no budget: a merge repeats no part of the patch, so the result is at most as large and
    // as deep as both arguments together.
    json_patch::merge(&mut input.target, &input.patch);
    Ok(input.target)
}

/// Arguments of `json:diff`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Diff {
    /// The old value.
    before: Value,
    /// The new value.
    after: Value,
}

fn difference(input: Diff) -> Result<Vec<diff::Operation>, ToolFailure> {
    diff::compare(&input.before, &input.after)
}

/// Arguments of `json:patch`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Patch {
    /// The value to change.
    target: Value,
    /// The operations, for example `[{"op": "add", "path": "/a", "value": 1}]`.
    patch: Vec<Value>,
}

fn apply_patch(input: Patch) -> Result<Value, ToolFailure> {
    patch::apply(input.target, input.patch)
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    fn call(action: &str, arguments: Value) -> Result<Value, ToolFailure> {
        find("json", action).expect("the tool exists").call(arguments)
    }

    #[test]
    fn parse_reports_the_position_of_an_error() {
        for (data, expected) in [
            ("{\"a\": 1,\n  b}", "line 2 column 3"),
            ("", "line 1 column 0"),
            ("[1, 2", "line 1 column 5"),
            ("1e999", "number out of range"),
            (&"[".repeat(100_000), "recursion limit exceeded"),
        ] {
            let failure = call("parse", json!({"data": data})).expect_err("not JSON");
            assert!(failure.to_string().contains(expected), "{failure}");
        }
        let deep = format!("{}{}", "[".repeat(101), "]".repeat(101));
        assert!(call("parse", json!({"data": deep})).is_err());
        let allowed = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(call("parse", json!({"data": allowed})).is_ok());
    }

    #[test]
    fn indentation_cannot_inflate_a_result() {
        let mut value = json!(vec![0; 100_000]);
        for _ in 0..90 {
            value = json!([value]);
        }
        assert!(matches!(
            call("stringify", json!({"value": value, "indent": 10})),
            Err(ToolFailure::ResultTooLarge { .. })
        ));
        assert!(call("stringify", json!({"value": 1, "indent": 11})).is_err());
    }

    #[test]
    fn get_distinguishes_null_from_a_missing_value() {
        assert_eq!(call("get", json!({"data": {"a": null}, "pointer": "/a"})), Ok(Value::Null));
        assert_eq!(
            call("get", json!({"data": {}, "pointer": "/a", "default": null})),
            Ok(Value::Null)
        );
        assert!(call("get", json!({"data": {}, "pointer": "/a"})).is_err());
        assert!(call("get", json!({"data": {}, "pointer": "a"})).is_err());
    }

    #[test]
    fn selecting_everything_at_every_level_is_too_large() {
        let mut value = json!("x".repeat(200_000));
        for _ in 0..90 {
            value = json!([value]);
        }
        assert!(matches!(
            call("query", json!({"data": value, "path": "$..*"})),
            Err(ToolFailure::ResultTooLarge { .. })
        ));
    }
}
