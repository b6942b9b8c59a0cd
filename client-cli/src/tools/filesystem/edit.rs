//! Edits by text replacement, with a diff in the format of the reference server.

use std::fs::File;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use similar::{Algorithm, DiffOp, TextDiff};

use super::read::ReadLimit;
use super::{Check, failed, invalid, read, write};
use crate::policy::Operation;
use crate::tools::{NativeError, RESULT_LIMIT, arguments};
use crate::workspace::path_error::shown;
use crate::workspace::reach::Reach;

/// The number of context lines around a change in the diff.
const CONTEXT: usize = 4;

/// The maximum number of edits in one call.
const EDITS_LIMIT: usize = 1_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EditFile {
    path: String,
    edits: Vec<Edit>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Edit {
    old_text: String,
    new_text: String,
}

pub(super) fn edit_file(workspace: Reach<'_>, value: Value) -> Result<String, NativeError> {
    let input: EditFile = arguments("filesystem:edit_file", value)?;
    input.check()?;
    let opened = read::open(workspace, &input.path)?;
    if !input.dry_run {
        // Refused early, before any work. `write::replace` checks again, because the path may lead
        // to another file by then.
        workspace.allow(&input.path, &opened.real, Operation::Change)?;
    }
    let size = u64::try_from(opened.stat.st_size).unwrap_or(0);
    let limit = ReadLimit::of(workspace, RESULT_LIMIT);
    let bytes = read::read_all(File::from(opened.fd), &input.path, size, limit)?;
    // Lossy decoding would destroy bytes that are not UTF-8.
    let original = String::from_utf8(bytes)
        .map_err(|_| failed(format!("`{}` is not UTF-8 text", shown(&input.path))))?
        // The reference server also writes all line ends of an edited file as LF.
        .replace("\r\n", "\n");
    let edited = input.apply(&original)?;
    let name = workspace.root().join(&opened.real).to_string_lossy().into_owned();
    let shown_diff = fenced(&unified(&name, &original, &edited));
    // Before the write: a call that fails must not have changed anything.
    if shown_diff.len() > super::RESULT_LIMIT {
        return Err(super::too_large("the diff", shown_diff.len() as u64, "edit less at once"));
    }
    if !input.dry_run {
        write::replace(workspace, &input.path, edited.as_bytes())?;
    }
    Ok(shown_diff)
}

/// Checks the arguments of an edit and the place that it changes.
pub(super) fn check(check: &mut Check<'_>, value: Value) -> Result<(), NativeError> {
    let input: EditFile = arguments("filesystem:edit_file", value)?;
    input.check()?;
    // The diff contains the old content, so an edit is also a read.
    read::check_file(check, &input.path)?;
    if input.dry_run { Ok(()) } else { write::check_change(check, &input.path) }
}

/// Returns the path, and what makes the new content of the old one; `None` if that is not known.
pub(super) fn parts(
    value: Value,
) -> Result<(String, impl Fn(&str) -> Option<String>), NativeError> {
    let input: EditFile = arguments("filesystem:edit_file", value)?;
    input.check()?;
    let path = input.path.clone();
    Ok((path, move |old: &str| match input.dry_run {
        true => None,
        false => input.apply(&old.replace("\r\n", "\n")).ok(),
    }))
}

impl EditFile {
    /// Makes all edits, one after the other.
    fn apply(&self, original: &str) -> Result<String, NativeError> {
        let mut edited = original.to_owned();
        for edit in &self.edits {
            edited = apply(&edited, edit)?;
            if edited.len() > RESULT_LIMIT {
                return Err(super::too_large(
                    "the edited file",
                    edited.len() as u64,
                    "make it smaller",
                ));
            }
        }
        Ok(edited)
    }

    fn check(&self) -> Result<(), NativeError> {
        match self.edits.len() > EDITS_LIMIT {
            true => Err(invalid("edit_file", "more than 1000 edits")),
            false => Ok(()),
        }
    }
}

fn apply(content: &str, edit: &Edit) -> Result<String, NativeError> {
    let old = edit.old_text.replace("\r\n", "\n");
    let new = edit.new_text.replace("\r\n", "\n");
    if content.contains(&old) {
        return Ok(content.replacen(&old, &new, 1));
    }
    // Fall back to a comparison of lines without leading and trailing white space.
    let old_lines: Vec<&str> = old.split('\n').collect();
    let mut lines: Vec<&str> = content.split('\n').collect();
    let found = lines
        .windows(old_lines.len())
        .position(|window| window.iter().zip(&old_lines).all(|(a, b)| trim(a) == trim(b)))
        .ok_or_else(|| {
            failed(format!("Could not find exact match for edit:\n{}", edit.old_text))
        })?;
    // The indentation follows the rules of the reference server, so that both write the same text.
    let indent = indent_of(lines[found]);
    let new_lines: Vec<String> = new
        .split('\n')
        .enumerate()
        .map(|(index, line)| {
            let body = &line[indent_of(line).len()..];
            if index == 0 {
                return format!("{indent}{body}");
            }
            let old_indent = old_lines.get(index).map_or("", |old| indent_of(old));
            let new_indent = indent_of(line);
            if old_indent.is_empty() || new_indent.is_empty() {
                return line.to_owned();
            }
            let deeper = new_indent.chars().count().saturating_sub(old_indent.chars().count());
            format!("{indent}{}{body}", " ".repeat(deeper))
        })
        .collect();
    lines.splice(found..found + old_lines.len(), new_lines.iter().map(String::as_str));
    Ok(lines.join("\n"))
}

/// Returns whether JavaScript's `trim` and `\s` treat a character as white space.
fn is_space(c: char) -> bool {
    // Rust counts U+0085 as white space and U+FEFF not; JavaScript does the opposite.
    (c.is_whitespace() && c != '\u{85}') || c == '\u{feff}'
}

fn trim(line: &str) -> &str {
    line.trim_matches(is_space)
}

fn indent_of(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches(is_space).len()]
}

/// Returns a unified diff in the form that the `diff` package of npm prints.
///
/// Where equal lines can be matched in several ways, the two may differ.
fn unified(name: &str, original: &str, edited: &str) -> String {
    let hunks = hunks(original, edited);
    format!(
        "Index: {name}\n{}\n--- {name}\toriginal\n+++ {name}\tmodified\n{hunks}",
        "=".repeat(67)
    )
}

/// Returns the hunks of a unified diff.
pub(super) fn hunks(original: &str, edited: &str) -> String {
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        // Myers' algorithm takes very long for large texts that have little in common. After the
        // deadline, the library returns an approximation.
        .deadline(Instant::now() + Duration::from_secs(2))
        .diff_lines(original, edited);
    let mut out = String::new();
    for group in diff.grouped_ops(CONTEXT) {
        let old = span(&group, DiffOp::old_range);
        let new = span(&group, DiffOp::new_range);
        out.push_str(&format!("@@ -{old} +{new} @@\n"));
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            out.push_str(&format!("{}{}", change.tag(), change.value()));
            if change.missing_newline() {
                out.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    out
}

fn span(group: &[DiffOp], range: fn(&DiffOp) -> std::ops::Range<usize>) -> String {
    let start = group.first().map_or(0, |op| range(op).start);
    let length = group.last().map_or(0, |op| range(op).end) - start;
    // An empty range names the line before it.
    let first = if length == 0 { start } else { start + 1 };
    format!("{first},{length}")
}

fn fenced(diff: &str) -> String {
    // The fence is longer than any in the diff, which could otherwise end the block.
    let mut ticks = 3;
    while diff.contains(&"`".repeat(ticks)) {
        ticks += 1;
    }
    let fence = "`".repeat(ticks);
    format!("{fence}diff\n{diff}{fence}\n\n")
}
