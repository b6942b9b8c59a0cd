//! The tools that search a text.

use regex::Captures;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

use crate::tools::limits::{BoundedText, Budget};
use crate::tools::pattern::{Deadline, Flags, Pattern};
use crate::tools::{NativeTool, ToolFailure};

/// The maximum number of matches of one call.
const MAX_MATCHES: usize = 10_000;

/// Returns these tools.
pub(super) fn tools() -> Vec<NativeTool> {
    vec![
        NativeTool::new(
            "string",
            "match",
            "Finds the matches of a regular expression (RE2 syntax, no look-around and no back-references) with their positions and groups.",
            find_matches,
        )
        .example(
            json!({"text": "a=1, b=22", "pattern": "(?<key>\\w)=(\\d+)", "limit": 1}),
            json!([{"text": "a=1", "index": 0, "groups": ["a", "1"], "named": {"key": "a"}}]),
        ),
        NativeTool::new(
            "string",
            "test",
            "Returns whether a regular expression matches somewhere in a text.",
            test,
        )
        .example(json!({"text": "abc", "pattern": "^a.c$"}), json!(true)),
        NativeTool::new(
            "string",
            "replace",
            "Replaces every occurrence of a text, or every match of a regular expression; there, $1 and ${name} refer to groups.",
            replace,
        )
        .example(json!({"text": "a-b-c", "search": "-", "replacement": "+"}), json!("a+b+c"))
        .example(
            json!({"text": "John Smith", "pattern": "(\\w+) (\\w+)", "replacement": "$2 $1"}),
            json!("Smith John"),
        ),
    ]
}

/// Arguments of `string:match`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Match {
    /// The text to search.
    text: String,
    /// The regular expression.
    pattern: String,
    /// The maximum number of matches to return.
    #[serde(default = "default_matches")]
    #[schemars(range(max = 10_000))]
    limit: usize,
    /// Whether to ignore the difference of upper and lower case.
    #[serde(default)]
    ignore_case: bool,
    /// Whether `^` and `$` also match at line ends.
    #[serde(default)]
    multi_line: bool,
    /// Whether `.` also matches a line feed.
    #[serde(default)]
    dot_all: bool,
}

fn default_matches() -> usize {
    MAX_MATCHES
}

/// One match.
#[derive(Serialize, JsonSchema)]
struct Found {
    /// The text that matched.
    text: String,
    /// The start of the match, in UTF-16 units, as in JavaScript.
    index: usize,
    /// The text of each group, in order; null for a group that did not take part in the match.
    groups: Vec<Option<String>>,
    /// The text of each named group.
    named: BTreeMap<String, Option<String>>,
}

fn find_matches(input: Match) -> Result<Vec<Found>, ToolFailure> {
    // The maximum in the schema only informs callers: arguments are not validated against it.
    if input.limit > MAX_MATCHES {
        return Err(ToolFailure::InvalidArguments(format!("`limit` can be at most {MAX_MATCHES}")));
    }
    let flags = Flags {
        ignore_case: input.ignore_case,
        multi_line: input.multi_line,
        dot_all: input.dot_all,
    };
    let pattern = Pattern::compile(&input.pattern, flags)?;
    let regex = pattern.for_text(input.text.len())?;
    let deadline = Deadline::start();
    let mut budget = Budget::result();
    let mut found = Vec::new();
    // UTF-16 units are counted from one match to the next, so that all matches together count the text once.
    let (mut counted_to, mut index) = (0, 0);
    for captures in regex.captures_iter(&input.text).take(input.limit) {
        let Some(whole) = captures.get(0) else {
            continue;
        };
        index += input.text[counted_to..whole.start()].encode_utf16().count();
        counted_to = whole.start();
        // Nested groups repeat the same text, and even an empty group adds a few bytes of JSON.
        let size: usize = captures.iter().flatten().map(|group| group.len()).sum();
        budget.take(2 * size + 16 * captures.len() + 64)?;
        let text = |group: regex::Match<'_>| group.as_str().to_owned();
        found.push(Found {
            text: text(whole),
            index,
            groups: captures.iter().skip(1).map(|group| group.map(text)).collect(),
            named: regex
                .capture_names()
                .flatten()
                .map(|name| (name.to_owned(), captures.name(name).map(text)))
                .collect(),
        });
        // Between the matches: the time of a single search is limited by `for_text`.
        deadline.check()?;
    }
    Ok(found)
}

/// Arguments of `string:test`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TestInput {
    /// The text to search.
    text: String,
    /// The regular expression.
    pattern: String,
    /// Whether to ignore the difference of upper and lower case.
    #[serde(default)]
    ignore_case: bool,
}

fn test(input: TestInput) -> Result<bool, ToolFailure> {
    let flags = Flags { ignore_case: input.ignore_case, ..Flags::default() };
    let pattern = Pattern::compile(&input.pattern, flags)?;
    Ok(pattern.for_text(input.text.len())?.is_match(&input.text))
}

/// Arguments of `string:replace`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Replace {
    /// The text.
    text: String,
    /// The text to search for; mutually exclusive with `pattern`.
    #[serde(default)]
    search: Option<String>,
    /// The regular expression to search for; mutually exclusive with `search`.
    #[serde(default)]
    pattern: Option<String>,
    /// The replacement.
    replacement: String,
    /// The maximum number of replacements; unlimited if omitted.
    #[serde(default)]
    limit: Option<usize>,
    /// Whether `pattern` ignores the difference of upper and lower case.
    #[serde(default)]
    ignore_case: bool,
}

fn replace(input: Replace) -> Result<String, ToolFailure> {
    let limit = input.limit.unwrap_or(usize::MAX);
    match (&input.search, &input.pattern) {
        (Some(search), None) if search.is_empty() => {
            Err(ToolFailure::InvalidArguments("`search` is empty".to_owned()))
        }
        (Some(search), None) => {
            let mut replaced = BoundedText::new();
            let mut copied_to = 0;
            // `str::replacen` would build a result of any size before it could be refused.
            for (start, found) in input.text.match_indices(search.as_str()).take(limit) {
                replaced.push(&input.text[copied_to..start])?;
                replaced.push(&input.replacement)?;
                copied_to = start + found.len();
            }
            replaced.push(&input.text[copied_to..])?;
            replaced.finish()
        }
        (None, Some(pattern)) => replace_pattern(&input, pattern, limit),
        _ => Err(ToolFailure::InvalidArguments(
            "`string:replace` takes either `search` or `pattern`".to_owned(),
        )),
    }
}

fn replace_pattern(input: &Replace, pattern: &str, limit: usize) -> Result<String, ToolFailure> {
    let flags = Flags { ignore_case: input.ignore_case, ..Flags::default() };
    let pattern = Pattern::compile(pattern, flags)?;
    let regex = pattern.for_text(input.text.len())?;
    let deadline = Deadline::start();
    let mut replaced = BoundedText::new();
    let mut copied_to = 0;
    // `Regex::replacen` would build a result of any size before it could be refused.
    for captures in regex.captures_iter(&input.text).take(limit) {
        let Some(whole) = captures.get(0) else {
            continue;
        };
        replaced.push(&input.text[copied_to..whole.start()])?;
        push_replacement(&mut replaced, &captures, &input.replacement)?;
        copied_to = whole.end();
        deadline.check()?;
    }
    replaced.push(&input.text[copied_to..])?;
    replaced.finish()
}

/// Appends a replacement, in which it expands `$1`, `${name}` and `$$`.
///
/// `Captures::expand` has no limit, and a short replacement can refer to a long group many
/// times.
fn push_replacement(
    out: &mut BoundedText,
    captures: &Captures<'_>,
    replacement: &str,
) -> Result<(), ToolFailure> {
    let mut rest = replacement;
    while let Some((before, after)) = rest.split_once('$') {
        out.push(before)?;
        if let Some(after) = after.strip_prefix('$') {
            out.push("$")?;
            rest = after;
            continue;
        }
        let (name, behind) = match after.strip_prefix('{').and_then(|name| name.split_once('}')) {
            Some(braced) => braced,
            // Without braces, only numbers are groups: `$1st` is group 1 and `st`.
            None => {
                let digits = after.bytes().take_while(u8::is_ascii_digit).count();
                after.split_at(digits)
            }
        };
        let group = match name.parse::<usize>() {
            Ok(number) => captures.get(number),
            Err(_) => captures.name(name),
        };
        // A `$` that begins no reference is ordinary text, and an unknown group is empty.
        if name.is_empty() {
            out.push("$")?;
        } else if let Some(group) = group {
            out.push(group.as_str())?;
        }
        rest = behind;
    }
    out.push(rest)
}
