//! Removes secrets and personal data from values before they become part of a trace.
//!
//! This is a guess by names and formats: a secret that looks like ordinary text stays. So values leave the machine only
//! where the user has chosen that, and the keys that PML itself knows are removed by value before
//! (`protocol::redaction`).

mod formats;
mod names;
mod schema;

use serde_json::{Map, Value};

pub use self::schema::sanitize_tool;

use self::formats::clean_text;

/// The replacement of a secret.
const REDACTED: &str = "[redacted]";
/// Longer strings are described instead of searched: they are contents, such as those of files.
const LONGEST_STRING: usize = 1024;
/// What is nested more deeply is not looked at, so it is dropped.
const DEPTH: usize = 32;

/// Returns a value without what looks like a secret or personal data, and with long strings described; `None` if its
/// JSON text would have more than `limit` bytes. Takes time in proportion to `limit`, not to the value.
pub fn sanitize(value: &Value, limit: usize) -> Option<Value> {
    let mut budget = Budget(limit);
    let clean = clean(value, DEPTH, &mut budget)?;
    // The budget counts bytes before they are escaped.
    (clean.to_string().len() <= limit).then_some(clean)
}

/// The bytes that the result may still have.
struct Budget(usize);

impl Budget {
    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.checked_sub(bytes)?;
        Some(())
    }
}

fn clean(value: &Value, depth: usize, budget: &mut Budget) -> Option<Value> {
    budget.spend(1)?;
    Some(match value {
        Value::Null | Value::Bool(_) => value.clone(),
        Value::Number(number) => match formats::is_card(&number.to_string()) {
            true => Value::String(REDACTED.to_owned()),
            false => value.clone(),
        },
        Value::String(text) => Value::String(string(text, depth, budget)?),
        Value::Array(_) | Value::Object(_) if depth == 0 => {
            Value::String("[dropped: nested too deeply]".to_owned())
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| clean(item, depth - 1, budget));
            Value::Array(items.collect::<Option<_>>()?)
        }
        Value::Object(members) => {
            let mut kept = Map::new();
            for (name, member) in members {
                // The name of a member can be data, too.
                let name_shown = string(name, 0, budget)?;
                // `has_password: true` is not a secret.
                let is_value = !matches!(member, Value::Null | Value::Bool(_));
                let member = match is_value && names::is_secret(name) {
                    true => Value::String(REDACTED.to_owned()),
                    false => clean(member, depth - 1, budget)?,
                };
                kept.insert(name_shown, member);
            }
            Value::Object(kept)
        }
    })
}

fn string(text: &str, depth: usize, budget: &mut Budget) -> Option<String> {
    if text.len() > LONGEST_STRING {
        budget.spend(32)?;
        return Some(format!("[text of {} bytes]", text.len()));
    }
    budget.spend(text.len())?;
    // JSON in a string: its members have names, which say more than the formats of values.
    if depth > 0
        && matches!(text.trim_start().as_bytes().first(), Some(b'{' | b'['))
        && let Ok(inner) = serde_json::from_str::<Value>(text)
    {
        return Some(clean(&inner, depth - 1, budget)?.to_string());
    }
    Some(clean_text(text))
}

#[cfg(test)]
mod tests;
