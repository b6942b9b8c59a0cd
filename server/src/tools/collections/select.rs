//! The tool that keeps the items that satisfy a condition.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tools::key_path::{KeyPath, find_by, identity, order};
use crate::tools::{NativeTool, ToolFailure};

/// Returns this tool.
pub(super) fn tools() -> Vec<NativeTool> {
    vec![
        NativeTool::new(
            "collections",
            "filter",
            "Keeps the items whose value at a key path satisfies a comparison with a given value.",
            filter,
        )
        .example(
            json!({"items": [{"n": 1}, {"n": 5}], "by": "n", "operator": "gt", "value": 2}),
            json!([{"n": 5}]),
        )
        .example(
            json!({"items": ["a", "b", "c"], "operator": "in", "value": ["a", "c"]}),
            json!(["a", "c"]),
        ),
    ]
}

/// A comparison of two values.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Operator {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less, of two numbers or two texts.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
    /// Is one of a list.
    In,
    /// Is none of a list.
    NotIn,
    /// A text contains a text, or a list contains a value.
    Contains,
    /// A text starts with a text.
    StartsWith,
    /// A text ends with a text.
    EndsWith,
    /// Exists and is not null.
    Exists,
    /// Is missing or null.
    Missing,
}

/// Arguments of `collections:filter`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Filter {
    /// The list.
    items: Vec<Value>,
    /// The dotted key path of the value to compare; the item itself if omitted.
    #[serde(default)]
    by: Option<KeyPath>,
    /// The comparison.
    operator: Operator,
    /// What to compare with; not used by `exists` and `missing`.
    #[serde(default)]
    value: Value,
}

fn filter(input: Filter) -> Result<Vec<Value>, ToolFailure> {
    let condition = Condition::new(input.operator, input.value)?;
    let mut items = input.items;
    items.retain(|item| condition.holds(find_by(input.by.as_ref(), item)));
    Ok(items)
}

/// An operator with its precomputed value, so that the cost for each item depends only on the item's size.
struct Condition {
    operator: Operator,
    value: Value,
    identity: String,
    members: HashSet<String>,
}

impl Condition {
    fn new(operator: Operator, value: Value) -> Result<Self, ToolFailure> {
        let fits = match operator {
            Operator::In | Operator::NotIn => value.is_array(),
            Operator::Lt | Operator::Le | Operator::Gt | Operator::Ge => {
                value.is_number() || value.is_string()
            }
            Operator::StartsWith | Operator::EndsWith => value.is_string(),
            _ => true,
        };
        if !fits {
            return Err(ToolFailure::InvalidArguments(
                "`value` has the wrong type for the operator: `in` and `not_in` take a list, `lt`, `le`, `gt` and `ge` a number or a text, `starts_with` and `ends_with` a text"
                    .to_owned(),
            ));
        }
        Ok(Self {
            operator,
            identity: identity(&value),
            members: value.as_array().into_iter().flatten().map(identity).collect(),
            value,
        })
    }

    fn holds(&self, found: &Value) -> bool {
        let order = || {
            // `key_path::order` also orders values of different types, which `lt` and the others
            // must not: 5 is not less than a text.
            let alike = found.is_number() && self.value.is_number()
                || found.is_string() && self.value.is_string();
            alike.then(|| order(found, &self.value))
        };
        let text = || found.as_str().zip(self.value.as_str());
        match self.operator {
            Operator::Eq => identity(found) == self.identity,
            // An item without the key has null there, so `ne` and `not_in` keep it.
            Operator::Ne => identity(found) != self.identity,
            Operator::Lt => order().is_some_and(|order| order.is_lt()),
            Operator::Le => order().is_some_and(|order| order.is_le()),
            Operator::Gt => order().is_some_and(|order| order.is_gt()),
            Operator::Ge => order().is_some_and(|order| order.is_ge()),
            Operator::In => self.members.contains(&identity(found)),
            Operator::NotIn => !self.members.contains(&identity(found)),
            Operator::Contains => match found {
                Value::Array(items) => items.iter().any(|item| identity(item) == self.identity),
                _ => text().is_some_and(|(found, value)| found.contains(value)),
            },
            Operator::StartsWith => text().is_some_and(|(found, value)| found.starts_with(value)),
            Operator::EndsWith => text().is_some_and(|(found, value)| found.ends_with(value)),
            Operator::Exists => !found.is_null(),
            Operator::Missing => found.is_null(),
        }
    }
}
