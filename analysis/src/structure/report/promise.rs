//! Messages about promises that are taken for what they will give, and about names that cannot be.

use super::super::core::Core;
use super::super::solve::{Misuse, Wrong};
use crate::diagnostic::{Code, Finding, shown};

/// The longest part of the program that a message repeats, in characters.
const QUOTED: usize = 48;

const DROPPED: &str = "nothing awaits this promise: the program goes on before the call has ended, and does not see it fail; write `await` before it";
const DROPPED_ITEMS: &str = "nothing awaits these promises: the program goes on before the calls have ended, and does not see them fail; write `await Promise.all(…)`";
const DROPPED_BY_EACH: &str = "`forEach` awaits nothing: the program goes on before these calls have ended, and does not see them fail; write `for (const item of list) { await … }`, or `await Promise.all(list.map(…))`";
const NOT_FLAT: &str = "this function gives a promise, which `flatMap` does not take apart; await all first: `const lists = await Promise.all(list.map(…))`, and then `lists.flat()`";
const NO_ORDER: &str = "this function gives a promise, which is no order; await first what is compared: `const keys = await Promise.all(list.map(…))`";

/// Returns what is wrong with a program, whatever flows through it.
pub(super) fn findings(core: &Core, misuses: &[Misuse], source: &str) -> Vec<Finding> {
    let unknown = core.unknown_names.iter().map(|(at, name)| {
        let message = format!(
            "`{}` is not declared, and has letters that look like others; write it in ASCII or declare it",
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

/// Returns what is wrong and what to write.
fn message(wrong: &Wrong, text: &str) -> String {
    let what = match wrong {
        Wrong::Condition => "which counts as true whatever the call gives",
        Wrong::Fallback => "so that what stands in for it is never used",
        Wrong::Text => "whose text is `[object Promise]`",
        Wrong::Operand => "and an operator needs a value",
        Wrong::Comparison => "which equals no value",
        Wrong::Parts => "which has no parts to take out",
        Wrong::List => "which is no list",
        Wrong::Spread => "which has nothing to spread",
        Wrong::Argument => "and a tool takes values",
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
                "`{text}` is a promise, and `{name}` needs what it gives; write `await {text}`"
            );
        }
        Wrong::Items => {
            return format!(
                "the items of `{text}` are promises; write `await Promise.all({text})`"
            );
        }
        Wrong::Decides(method) => {
            return format!(
                "this function gives a promise, which `{method}` takes for true; await all first: `const kept = await Promise.all(list.map(…))`"
            );
        }
        Wrong::NotFlat => return NOT_FLAT.to_owned(),
        Wrong::NoOrder => return NO_ORDER.to_owned(),
        Wrong::Dropped => return DROPPED.to_owned(),
        Wrong::DroppedItems => return DROPPED_ITEMS.to_owned(),
        Wrong::DroppedByEach => return DROPPED_BY_EACH.to_owned(),
        Wrong::NoTool(why) => return format!("this names no tool: {why}"),
    };
    format!("`{text}` is a promise, {what}; write `await {text}`")
}

/// Returns an expression as it is written, on one line and shortened.
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
    // What a call is given is of no interest.
    match text.find('(') {
        Some(open) if is_name(&text[..open]) && text.chars().count() > QUOTED => {
            format!("{}(…)", shown(&text[..open], QUOTED))
        }
        _ => shown(&text, QUOTED),
    }
}

#[cfg(test)]
mod tests;
