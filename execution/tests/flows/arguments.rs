//! Compares the arguments that a plan displays with those that a tool receives.

use analysis::{Argument, PathStep};
use serde_json::Value;

use crate::claims::Claims;
use crate::inputs::Inputs;

/// The field name under which a plan displays the fields whose names are unknown.
const REST: &str = "*";

/// Whether the sent arguments match the displayed ones. A part that is displayed as an expression matches anything.
pub(crate) fn matches(
    claims: &Claims,
    displayed: &Argument,
    sent: &Value,
    inputs: &Inputs,
) -> bool {
    matches_part(claims, displayed, Some(sent), inputs)
}

fn matches_part(
    claims: &Claims,
    displayed: &Argument,
    sent: Option<&Value>,
    inputs: &Inputs,
) -> bool {
    match displayed {
        Argument::Literal { value } => equals(Some(value), sent),
        Argument::Reference { task, path } => {
            let task = claims.tasks.iter().find(|known| known.id == *task);
            // A failed call has no result that could be sent.
            let result = task.and_then(|task| inputs.result_of(&task.tool).ok());
            result.is_some_and(|result| equals(part(&result, path).as_ref(), sent))
        }
        Argument::Parameter { path } => equals(part(&inputs.args(), path).as_ref(), sent),
        Argument::Object { fields } => {
            let Some(Value::Object(sent)) = sent else { return false };
            let rest = fields.contains_key(REST);
            let named = fields.iter().filter(|(name, _)| *name != REST);
            let mut named = named.map(|(name, displayed)| (sent.get(name), displayed));
            named.all(|(sent, displayed)| matches_part(claims, displayed, sent, inputs))
                && (rest || sent.keys().all(|name| fields.contains_key(name)))
        }
        Argument::Array { items } => {
            let Some(Value::Array(sent)) = sent else { return false };
            sent.len() == items.len()
                && items
                    .iter()
                    .zip(sent)
                    .all(|(displayed, sent)| matches_part(claims, displayed, Some(sent), inputs))
        }
        Argument::Expression { .. } => true,
    }
}

/// Whether two values are equal. `undefined` is sent as a missing field or, in a list, as `null`.
fn equals(displayed: Option<&Value>, sent: Option<&Value>) -> bool {
    match (displayed.unwrap_or(&Value::Null), sent.unwrap_or(&Value::Null)) {
        (Value::Number(displayed), Value::Number(sent)) => displayed.as_f64() == sent.as_f64(),
        (Value::Array(displayed), Value::Array(sent)) => {
            let pairs = displayed.iter().zip(sent);
            displayed.len() == sent.len()
                && pairs.into_iter().all(|(displayed, sent)| equals(Some(displayed), Some(sent)))
        }
        (Value::Object(displayed), Value::Object(sent)) => {
            let same = |(name, value): (&String, &Value)| equals(Some(value), sent.get(name));
            displayed.iter().all(same) && sent.keys().all(|name| displayed.contains_key(name))
        }
        (displayed, sent) => displayed == sent,
    }
}

/// Returns the part of a value that a program reads at a path.
fn part(value: &Value, path: &[PathStep]) -> Option<Value> {
    let Some((step, rest)) = path.split_first() else { return Some(value.clone()) };
    let next = match (value, step) {
        (Value::Object(fields), PathStep::Field(name)) => fields.get(name).cloned(),
        (Value::Object(fields), PathStep::Index(index)) => fields.get(&index.to_string()).cloned(),
        (Value::Array(items), PathStep::Index(index)) => items.get(*index as usize).cloned(),
        (Value::Array(items), PathStep::Field(name)) if name == "length" => {
            Some(items.len().into())
        }
        (Value::String(text), PathStep::Field(name)) if name == "length" => {
            Some(text.encode_utf16().count().into())
        }
        (Value::String(text), PathStep::Index(index)) => {
            text.chars().nth(*index as usize).map(|c| c.to_string().into())
        }
        _ => None,
    };
    part(&next?, rest)
}
