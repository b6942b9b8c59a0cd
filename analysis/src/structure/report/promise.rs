//! Messages about promises that are used as if they were values, and about invalid names.

use super::super::core::Core;
use super::super::solve::{Misuse, Wrong};
use crate::diagnostic::{Code, Finding, shown};

/// The maximum length of source text in a message, in characters.
const QUOTED: usize = 48;

const DROPPED: &str = "this promise is not awaited, so the program does not wait for the call or notice its failure; write `await` before it";
const DROPPED_ITEMS: &str = "these promises are not awaited, so the program does not wait for the calls or notice their failure; write `await Promise.all(…)`";
const DROPPED_BY_EACH: &str = "`forEach` does not await its callback, so the program does not wait for these calls or notice their failure; write `for (const item of list) { await … }`, or `await Promise.all(list.map(…))`";
const NOT_FLAT: &str = "this function returns a promise, which `flatMap` does not flatten; await the lists first: `const lists = await Promise.all(list.map(…))`, and then `lists.flat()`";
const NO_ORDER: &str = "this comparison function returns a promise instead of a number; await the compared values first: `const keys = await Promise.all(list.map(…))`";

/// Returns the errors and warnings about misused promises and invalid names.
pub(super) fn findings(core: &Core, misuses: &[Misuse], source: &str) -> Vec<Finding> {
    let unknown = core.unknown_names.iter().map(|(at, name)| {
        let message = format!(
            "`{}` is not declared, and contains non-ASCII letters, which may look like others; write it in ASCII, or declare it",
            shown(name, 64)
        );
        Finding::new(Code::UnknownName, *at, message)
    });
    let mut findings: Vec<Finding> = unknown.collect();
    findings.extend(misuses.iter().map(|misuse| finding(misuse, source)));
    findings.sort();
    findings.dedup();
    findings
}

fn finding(misuse: &Misuse, source: &str) -> Finding {
    let code = match misuse.wrong {
        Wrong::Dropped | Wrong::DroppedItems | Wrong::DroppedByEach => Code::ToolPromiseDropped,
        Wrong::NoTool(_) => Code::InvalidToolName,
        _ if misuse.sure => Code::ToolPromiseUsed,
        _ => Code::ToolPromiseMaybeUsed,
    };
    Finding::new(code, misuse.at, message(&misuse.wrong, &quoted(misuse.text, source)))
}

/// Returns a message that says what is wrong and what to write instead.
fn message(wrong: &Wrong, text: &str) -> String {
    let what = match wrong {
        Wrong::Condition => "which is always true",
        Wrong::Fallback => "so the fallback is never used",
        Wrong::Text => "which converts to `[object Promise]`",
        Wrong::Operand => "but an operator needs a value",
        Wrong::Comparison => "which is not equal to any value",
        Wrong::Parts => "which cannot be destructured",
        Wrong::List => "which is not iterable",
        Wrong::Spread => "which has nothing to spread",
        Wrong::Argument => "but a tool needs a value",
        Wrong::Json => "which is `{}` in JSON",
        Wrong::Printed => "which prints as `Promise {}`",
        Wrong::Field(name) => {
            let name = shown(name, 40);
            return format!(
                "`{text}` is a promise, which has no `{name}`; write `(await {text}).{name}`"
            );
        }
        Wrong::Converted(name) => {
            return format!(
                "`{text}` is a promise, but `{name}` needs its value; write `await {text}`"
            );
        }
        Wrong::Items => {
            return format!(
                "the items of `{text}` are promises; write `await Promise.all({text})`"
            );
        }
        Wrong::Decides(method) => {
            return format!(
                "this function returns a promise, which `{method}` treats as true; await the results first: `const kept = await Promise.all(list.map(…))`"
            );
        }
        Wrong::NotFlat => return NOT_FLAT.to_owned(),
        Wrong::NoOrder => return NO_ORDER.to_owned(),
        Wrong::Dropped => return DROPPED.to_owned(),
        Wrong::DroppedItems => return DROPPED_ITEMS.to_owned(),
        Wrong::DroppedByEach => return DROPPED_BY_EACH.to_owned(),
        Wrong::NoTool(why) => return why.clone(),
    };
    format!("`{text}` is a promise, {what}; write `await {text}`")
}

/// Returns the source text of an expression, on one line and shortened.
fn quoted((from, until): (u32, u32), source: &str) -> String {
    let text = source.get(from as usize..until as usize).unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() {
        return "this".to_owned();
    }
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_alphabetic() || matches!(first, '_' | '$'))
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | '?'))
    };
    // A long call is shown without its arguments.
    match text.find('(') {
        Some(open) if is_name(&text[..open]) && text.chars().count() > QUOTED => {
            format!("{}(…)", shown(&text[..open], QUOTED))
        }
        _ => shown(&text, QUOTED),
    }
}

#[cfg(test)]
mod tests;
