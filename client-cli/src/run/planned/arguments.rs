//! The arguments of a call, as far as they are known before the program starts.

use analysis::{Argument, PathStep, PlannedTask, Times};
use serde_json::{Map, Value};

/// Returns the arguments of a task that makes one call at most, if they are known before the program starts.
pub(super) fn exact(task: &PlannedTask, args: &Value) -> Option<Value> {
    if task.times == Times::Once { arguments(task, args) } else { None }
}

/// Returns the arguments of a call, if they are known before the program starts.
pub(super) fn arguments(task: &PlannedTask, args: &Value) -> Option<Value> {
    let mut all = Map::new();
    for (name, argument) in &task.arguments {
        // `*` is a value that is spread.
        if name == "*" {
            return None;
        }
        if let Some(value) = known(argument, args)? {
            all.insert(name.clone(), value);
        }
    }
    Some(Value::Object(all))
}

/// Returns whether a call with these arguments may be a call of `task`: whether they have the values that are known, and
/// the fixed parts of templates.
pub(super) fn fits(task: &PlannedTask, args: &Value, arguments: &Value) -> bool {
    let Value::Object(fields) = arguments else { return false };
    let has_known =
        task.arguments.iter().filter(|(name, _)| *name != "*").all(|(name, argument)| {
            match (known(argument, args), argument, fields.get(name)) {
                (Some(value), _, field) => value.as_ref() == field,
                (None, Argument::Expression { source, .. }, Some(Value::String(text))) => {
                    is_of_template(text, source)
                }
                (None, ..) => true,
            }
        });
    let is_spread = task.arguments.contains_key("*");
    has_known && (is_spread || fields.keys().all(|name| task.arguments.contains_key(name)))
}

/// Returns whether `text` may be a value of the expression `source`: if that is a template, whether it has the parts
/// between the holes. What is too difficult to tell may be.
fn is_of_template(text: &str, source: &str) -> bool {
    let Some(mut rest) = source.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) else {
        return true;
    };
    // Escapes, and templates or texts within a hole, which may contain braces.
    if rest.contains(['\\', '`', '"', '\'', '…']) {
        return true;
    }
    let (mut left, mut is_start) = (text, true);
    loop {
        let (part, hole) = match rest.split_once("${") {
            Some((part, hole)) => (part, Some(hole)),
            None => (rest, None),
        };
        // The source is shortened: its white space is not that of the program.
        for word in part.split_whitespace() {
            let is_anchored = is_start && part.starts_with(word);
            match left.find(word) {
                Some(0) => left = &left[word.len()..],
                Some(at) if !is_anchored => left = &left[at + word.len()..],
                _ => return false,
            }
            is_start = false;
        }
        let Some(hole) = hole else {
            let last = part.split_whitespace().next_back().filter(|last| part.ends_with(last));
            return last.is_none_or(|last| text.ends_with(last));
        };
        let Some(end) = end_of_hole(hole) else { return true };
        (rest, is_start) = (&hole[end..], false);
    }
}

/// Returns where a hole of a template ends, after its brace.
fn end_of_hole(hole: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, byte) in hole.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// Returns the value of an argument, or that it is `undefined`; `None` if it is not known.
fn known(argument: &Argument, args: &Value) -> Option<Option<Value>> {
    Some(Some(match argument {
        Argument::Literal { value } => value.clone(),
        Argument::Parameter { path } => return of_args(path, args),
        Argument::Object { fields } => {
            let mut all = Map::new();
            for (name, field) in fields {
                if name == "*" {
                    return None;
                }
                // JSON has no `undefined`: such a field is left out.
                if let Some(value) = known(field, args)? {
                    all.insert(name.clone(), value);
                }
            }
            Value::Object(all)
        }
        Argument::Array { items } => {
            let items = items.iter().map(|item| Some(known(item, args)?.unwrap_or(Value::Null)));
            Value::Array(items.collect::<Option<_>>()?)
        }
        Argument::Reference { .. } | Argument::Expression { .. } => return None,
    }))
}

/// Returns the part of `args` at a path.
fn of_args(path: &[PathStep], args: &Value) -> Option<Option<Value>> {
    let mut value = args;
    for (place, step) in path.iter().enumerate() {
        let next = match (step, value) {
            (PathStep::Index(index), Value::Array(items)) => items.get(*index as usize),
            (PathStep::Index(index), Value::Object(fields)) => fields.get(&index.to_string()),
            (PathStep::Field(name), Value::Object(fields)) => fields.get(name),
            // A property that the engine defines, as of a text, or none.
            _ => return None,
        };
        match next {
            Some(next) => value = next,
            None if place + 1 == path.len() => return Some(None),
            // Reading a property of nothing fails.
            None => return None,
        }
    }
    Some(Some(value.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_fixed_parts() {
        for (text, source, expected) in [
            ("site/a.html", "`site/${name}.html`", true),
            ("site/.html", "`site/${name}.html`", true),
            ("now.txt", "`site/${name}.html`", false),
            ("site/a.txt", "`site/${name}.html`", false),
            ("my site/a.html", "`site/${name}.html`", false),
            ("a-b", "`${x}-${y}`", true),
            ("ab", "`${x}-${y}`", false),
            ("1 of 2", "`${one.map((x) => ({ x })).length} of ${two}`", true),
            ("1 in 2", "`${one.map((x) => ({ x })).length} of ${two}`", false),
            ("a\nb", "`a b`", true),
            ("anything", "`a\\n${x}`", true),
            ("anything", "`a${x ? \"}\" : y}b`", true),
            ("anything", "name", true),
            ("anything", "`a${x} and a long …", true),
        ] {
            assert_eq!(is_of_template(text, source), expected, "{text:?} {source}");
        }
    }
}
