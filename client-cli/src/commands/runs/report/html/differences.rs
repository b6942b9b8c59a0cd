//! What a run changed in files, line by line.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use protocol::Integrity;
use protocol::redaction::keys_in_use;
use serde_json::Value;
use similar::{Algorithm, ChangeTag, TextDiff};

use super::page::{Page, head};
use crate::commands::runs::display;
use crate::commands::runs::report::Report;
use crate::run_store::reader::Call;
use crate::run_store::record::{Change, FileChanging, KeptFile};

/// The size of the largest texts that are compared, in bytes.
const COMPARED: usize = 256 * 1024;
/// The number of unchanged lines around a change.
const CONTEXT: usize = 3;
/// The maximum size of one difference, in bytes of markup.
const SHOWN: usize = 12 * 1024;
/// The maximum size of one line, in bytes of markup.
const LINE: usize = 2 * 1024;
/// How long a difference is looked for. After that it is not the smallest.
const TIME: Duration = Duration::from_millis(200);

/// Appends the changes of a run; `until` is the size at which the page has no more room for them.
pub(super) fn section(page: &mut Page, report: &Report<'_>, root: &Path, until: usize) {
    let changes = &report.run.changes;
    if changes.is_empty() {
        return;
    }
    page.element("<section><h2>", "Changed files", "</h2>");
    page.element(
        r#"<p class="note">"#,
        "A change is recorded before it is made: a call that did not succeed may not have made it.",
        "</p>",
    );
    for (index, changing) in changes.iter().enumerate() {
        if page.len() + SHOWN + LINE > until {
            let more = format!(
                "{} more changes are not on this page; `pml report --format json` has them.",
                changes.len() - index
            );
            page.element(r#"<p class="note">"#, &more, "</p>");
            break;
        }
        page.markup("<h3>");
        page.text(&format!("Call {}: ", changing.call));
        // Escaped already. What is escaped twice looks the same.
        page.text(head(&display::change(&changing.change), LINE).0);
        page.markup("</h3>");
        match contents(report, root, changing) {
            None => {}
            Some(Err(why)) => page.element(r#"<p class="note">"#, &why, "</p>"),
            Some(Ok((before, after))) => difference(page, &before, &after),
        }
    }
    page.markup("</section>");
}

fn difference(page: &mut Page, before: &str, after: &str) {
    let end = page.len() + SHOWN;
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .deadline(Instant::now() + TIME)
        .diff_lines(before, after);
    if before == after {
        page.element(r#"<p class="note">"#, "The content is the same.", "</p>");
        return;
    }
    page.markup("<pre><code>");
    'all: for (index, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if index > 0 {
            page.element(r#"<span class="hunk">"#, "⋯", "</span>");
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            if page.len() + LINE > end {
                page.element(r#"<span class="hunk">"#, "… the rest is not shown", "</span>");
                break 'all;
            }
            let (open, close) = match change.tag() {
                ChangeTag::Insert => ("<ins>", "</ins>"),
                ChangeTag::Delete => ("<del>", "</del>"),
                ChangeTag::Equal => (r#"<span class="same">"#, "</span>"),
            };
            let line = change.value().trim_end_matches('\n');
            let (shown, _) = head(line, LINE / 2);
            let cut = if shown.len() < line.len() { " …" } else { "" };
            // Each is a line of its own by the style.
            page.markup(open);
            page.text(&format!("{}{shown}{cut}", change.tag()));
            page.markup(close);
        }
    }
    page.markup("</code></pre>");
}

/// Returns the texts before and after a change, without keys, or why they are not shown; `None` if the change has no
/// content.
fn contents(
    report: &Report<'_>,
    root: &Path,
    changing: &FileChanging,
) -> Option<Result<(String, String), String>> {
    let (path, before, after) = match &changing.change {
        Change::Write { path, before, after, .. } => (path, before.as_ref(), Some(*after)),
        Change::Remove { path, before } => (path, Some(before), None),
        Change::CreateFolder { .. }
        | Change::RemoveFolder { .. }
        | Change::Move { .. }
        | Change::Erased { .. } => return None,
    };
    let read = || {
        if is_hidden(path) {
            // They often contain keys, and a report is made to be passed on.
            return Err("The contents of hidden files are not shown.".to_owned());
        }
        let before = match before {
            None => String::new(),
            Some(kept) => text(old(report, kept)?)?,
        };
        let after = match after {
            None => String::new(),
            Some(hash) => {
                text(new(report, root, path, &changing.call, hash).ok_or_else(|| {
                    "The new content is not kept, and the file has another one by now.".to_owned()
                })?)?
            }
        };
        Ok((before, after))
    };
    Some(read())
}

fn is_hidden(path: &str) -> bool {
    Path::new(path).components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."))
}

fn old(report: &Report<'_>, kept: &KeptFile) -> Result<Vec<u8>, String> {
    let found = kept.hash.and_then(|hash| report.reader.kept(hash));
    found.ok_or_else(|| match &kept.not_kept {
        Some(why) => format!("The content before was not kept: {why}."),
        None => "The content before is missing or was changed.".to_owned(),
    })
}

/// Returns the content with a hash from where it may be: kept by a later change, in the arguments of the call, or still in
/// the file.
fn new(
    report: &Report<'_>,
    root: &Path,
    path: &str,
    call: &str,
    hash: Integrity,
) -> Option<Vec<u8>> {
    if let Some(kept) = report.reader.kept(hash) {
        return Some(kept);
    }
    let made = report.run.calls.iter().find_map(|found| match found {
        Call::Made(made) if made.began.call == call => Some(made),
        _ => None,
    });
    let arguments = made.and_then(|made| report.reader.content(&made.began.args));
    let arguments = arguments.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let content = arguments.as_ref().and_then(|arguments| arguments["content"].as_str());
    let has_hash = |bytes: &&[u8]| Integrity::of(bytes) == hash;
    if let Some(content) = content.map(str::as_bytes).filter(has_hash) {
        return Some(content.to_owned());
    }
    // A record that somebody else wrote could name any file of the user.
    if report.doubt.is_some() {
        return None;
    }
    present(&root.join(path)).filter(|bytes| has_hash(&&**bytes))
}

/// Reads a file as it is now, unless it is large or not a file.
fn present(path: &PathBuf) -> Option<Vec<u8>> {
    let found = std::fs::symlink_metadata(path).ok()?;
    let is_small = found.is_file() && found.len() <= COMPARED as u64;
    is_small.then(|| std::fs::read(path).ok())?
}

fn text(content: Vec<u8>) -> Result<String, String> {
    if content.len() > COMPARED {
        let size = COMPARED / 1024;
        return Err(format!("The content is larger than {size} KiB, so it is not compared."));
    }
    let text = String::from_utf8(content)
        .map_err(|_| "The content is not text, so it is not compared.".to_owned())?;
    Ok(keys_in_use().text(&text).into_owned())
}
