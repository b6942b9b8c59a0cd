//! Arguments as they are shown, held against what was sent.

use analysis::{Argument, PathStep};
use serde_json::Value;

use crate::told::Told;
use crate::world::World;

/// Stands for the part of an argument that has no name.
const REST: &str = "*";

/// Whether what was sent is what is shown, as far as it is shown.
pub(crate) fn agrees(told: &Told, shown: &Argument, sent: &Value, world: &World) -> bool {
    is(told, shown, Some(sent), world)
}

fn is(told: &Told, shown: &Argument, sent: Option<&Value>, world: &World) -> bool {
    match shown {
        Argument::Literal { value } => is_value(Some(value), sent),
        Argument::Reference { task, path } => {
            let task = told.tasks.iter().find(|known| known.id == *task);
            let answer = task.and_then(|task| world.answer(&task.tool).ok());
            match answer {
                Some(answer) => is_value(part(&answer, path).as_ref(), sent),
                // Nothing flows of a call that failed.
                None => false,
            }
        }
        Argument::Parameter { path } => is_value(part(&world.args(), path).as_ref(), sent),
        Argument::Object { fields } => {
            let Some(Value::Object(sent)) = sent else { return false };
            let rest = fields.contains_key(REST);
            let named = fields.iter().filter(|(name, _)| *name != REST);
            let mut named = named.map(|(name, shown)| (sent.get(name), shown));
            named.all(|(sent, shown)| is(told, shown, sent, world))
                && (rest || sent.keys().all(|name| fields.contains_key(name)))
        }
        Argument::Array { items } => {
            let Some(Value::Array(sent)) = sent else { return false };
            sent.len() == items.len()
                && items.iter().zip(sent).all(|(shown, sent)| is(told, shown, Some(sent), world))
        }
        Argument::Expression { .. } => true,
    }
}

/// Whether two values are the same; one that is not there is sent as nothing or as `null`.
fn is_value(shown: Option<&Value>, sent: Option<&Value>) -> bool {
    match (shown.unwrap_or(&Value::Null), sent.unwrap_or(&Value::Null)) {
        (Value::Number(shown), Value::Number(sent)) => shown.as_f64() == sent.as_f64(),
        (Value::Array(shown), Value::Array(sent)) => {
            let pairs = shown.iter().zip(sent);
            shown.len() == sent.len()
                && pairs.into_iter().all(|(shown, sent)| is_value(Some(shown), Some(sent)))
        }
        (Value::Object(shown), Value::Object(sent)) => {
            let same = |(name, value): (&String, &Value)| is_value(Some(value), sent.get(name));
            shown.iter().all(same) && sent.keys().all(|name| shown.contains_key(name))
        }
        (shown, sent) => shown == sent,
    }
}

/// Returns a part of a value as a program reads it.
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
