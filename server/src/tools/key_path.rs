//! Paths to fields, and the equality and order of values.

use std::cmp::Ordering;
use std::fmt::Write;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Number, Value};

use super::limits::{MAX_DEPTH, MAX_PATH_BYTES};

/// A dotted path such as `address.city` or `tags.0`.
#[derive(Debug, Clone)]
pub(super) struct KeyPath(Vec<String>);

impl KeyPath {
    /// Returns the value at the path.
    pub(super) fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(value, |value, key| match value {
            Value::Object(fields) => fields.get(key),
            Value::Array(items) => items.get(key.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// Returns the value at the path, or null.
    pub(super) fn find_or_null<'v>(&self, value: &'v Value) -> &'v Value {
        self.find(value).unwrap_or(&Value::Null)
    }
}

/// Returns the value at an optional path; without a path, the value itself.
pub(super) fn find_by<'v>(by: Option<&KeyPath>, value: &'v Value) -> &'v Value {
    by.map_or(value, |path| path.find_or_null(value))
}

impl<'de> Deserialize<'de> for KeyPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // The path is applied to every item of a list, so its length multiplies the cost.
        if text.is_empty() || text.len() > MAX_PATH_BYTES {
            return Err(D::Error::custom(format!(
                "a key path must have 1 to {MAX_PATH_BYTES} bytes, not {}",
                text.len()
            )));
        }
        let segments: Vec<String> = text.split('.').map(str::to_owned).collect();
        if segments.len() > MAX_DEPTH {
            return Err(D::Error::custom(format!("a key path can have at most {MAX_DEPTH} keys")));
        }
        Ok(Self(segments))
    }
}

impl JsonSchema for KeyPath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KeyPath".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_PATH_BYTES })
    }
}

/// Serializes a value so that equal values have equal texts: keys are sorted, and `1` and `1.0` are the same.
pub(super) fn identity(value: &Value) -> String {
    let mut text = String::new();
    write_identity(value, &mut text);
    text
}

fn write_identity(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push('n'),
        Value::Bool(truth) => out.push(if *truth { 't' } else { 'f' }),
        Value::Number(number) => {
            let number = comparable(number);
            // Writing to a string cannot fail.
            let _infallible = match number {
                // Without the `;`, `[1, 2]` and `[12]` would have the same identity.
                Comparable::Integer(integer) => write!(out, "{integer};"),
                Comparable::Real(real) => write!(out, "r{:x};", real.to_bits()),
            };
        }
        Value::String(text) => write_text(text, out),
        Value::Array(items) => {
            out.push('[');
            items.iter().for_each(|item| write_identity(item, out));
            out.push(']');
        }
        Value::Object(fields) => {
            // The members of a `Value` are in the order of their insertion, which does not count.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (key, field) in fields {
                write_text(key, out);
                write_identity(field, out);
            }
            out.push('}');
        }
    }
}

/// Writes a text with its length, so that its content cannot be confused with other parts.
fn write_text(text: &str, out: &mut String) {
    let _infallible = write!(out, "\"{}:{text}", text.len());
}

enum Comparable {
    Integer(i128),
    Real(f64),
}

fn comparable(number: &Number) -> Comparable {
    if let Some(integer) = number.as_i128() {
        return Comparable::Integer(integer);
    }
    let real = number.as_f64().unwrap_or_default();
    // Without a fraction, a number of this size converts exactly to an `i128`.
    if real.fract() == 0.0 && real.abs() < 1e30 {
        #[expect(clippy::cast_possible_truncation, reason = "an integer in range")]
        return Comparable::Integer(real as i128);
    }
    Comparable::Real(real)
}

/// Orders values: null, false, true, numbers, texts, arrays, objects.
pub(super) fn order(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Number(left), Value::Number(right)) => order_numbers(left, right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let pairs = left.iter().zip(right).map(|(left, right)| order(left, right));
            pairs
                .into_iter()
                .find(|order| order.is_ne())
                .unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        // Two objects rank equal, so a stable sort keeps their order.
        (left, right) => rank(left).cmp(&rank(right)),
    }
}

/// Orders numbers by value.
pub(super) fn order_numbers(left: &Number, right: &Number) -> Ordering {
    match (comparable(left), comparable(right)) {
        (Comparable::Integer(left), Comparable::Integer(right)) => left.cmp(&right),
        // Two integers are compared exactly above, so that large ones do not collapse to one double.
        #[expect(clippy::cast_precision_loss, reason = "the other side has a fraction or is huge")]
        (left, right) => {
            let real = |side| match side {
                Comparable::Integer(integer) => integer as f64,
                Comparable::Real(real) => real,
            };
            real(left).total_cmp(&real(right))
        }
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_values_have_one_identity() {
        let values = [
            json!(null),
            json!(false),
            json!(0),
            json!(1.5),
            json!("1"),
            json!("n"),
            json!([]),
            json!([[]]),
            json!([1, 2]),
            json!([12]),
            json!({}),
            json!({"a": 1}),
            json!({"a": null}),
            json!(["\"1:a"]),
            json!(1e300),
            json!(9_007_199_254_740_993_u64),
            json!(9_007_199_254_740_992_u64),
        ];
        for (i, left) in values.iter().enumerate() {
            for (j, right) in values.iter().enumerate() {
                assert_eq!(identity(left) == identity(right), i == j, "{left} {right}");
            }
        }
        assert_eq!(identity(&json!(1)), identity(&json!(1.0)));
        assert_eq!(identity(&json!(-0.0)), identity(&json!(0)));
        assert_eq!(identity(&json!({"a": 1, "b": 2})), identity(&json!({"b": 2, "a": 1})));
    }

    #[test]
    fn every_pair_has_an_order() {
        let sorted = [
            json!(null),
            json!(false),
            json!(true),
            json!(-1.5),
            json!(1),
            json!(1.5),
            json!(2),
            json!(1e300),
            json!(""),
            json!("a"),
            json!("b"),
            json!([]),
            json!([1]),
            json!([1, 0]),
            json!([2]),
            json!({}),
        ];
        for (i, left) in sorted.iter().enumerate() {
            for (j, right) in sorted.iter().enumerate() {
                assert_eq!(order(left, right), i.cmp(&j), "{left} {right}");
            }
        }
    }

    #[test]
    fn paths_traverse_objects_and_arrays() {
        let path = |text: &str| serde_json::from_value::<KeyPath>(json!(text));
        let value = json!({"a": [{"b": 1}], "": 2});
        assert_eq!(path("a.0.b").expect("a path").find(&value), Some(&json!(1)));
        assert_eq!(path("a.1.b").expect("a path").find(&value), None);
        assert_eq!(path("a.b").expect("a path").find(&value), None);
        assert!(path("").is_err());
        assert!(path(&"a".repeat(2_000)).is_err());
        assert!(path(&"a.".repeat(200)).is_err());
    }
}
