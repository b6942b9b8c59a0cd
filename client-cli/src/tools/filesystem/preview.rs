//! What a call would do to a file, for the question about the call.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use protocol::Integrity;
use protocol::redaction::keys_in_use;
use serde_json::Value;

use super::{edit, write};
use crate::policy::Operation;
use crate::workspace::reach::Reach;

/// The size of the largest file whose content is compared, in bytes.
const COMPARED_LIMIT: u64 = 16 * 1024 * 1024;

/// The size of the largest texts of which a difference is made, in bytes.
const DIFF_LIMIT: usize = 256 * 1024;

/// What a call would do to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Preview {
    /// The real path of the file in the workspace.
    pub(crate) real: PathBuf,
    /// Identifies the present content; `None` if there is no file.
    pub(crate) before: Option<Integrity>,
    /// The size of the present content, in bytes.
    pub(crate) bytes: u64,
    /// The difference between the present content and the new one, as hunks of a unified diff without keys in use;
    /// `None` if there is no file, if it may not be read, or if it is large or no text.
    pub(crate) diff: Option<String>,
}

/// Makes the new content of a file from the old one; `None` if it is not known.
type NewContent = dyn Fn(&str) -> Option<String>;

/// Returns what a call would do, as far as that is known. With `shown`, a difference may be shown: a rule lets the
/// program read files.
pub(crate) fn of(
    workspace: Reach<'_>,
    action: &str,
    arguments: &Value,
    shown: bool,
) -> Option<Preview> {
    let (given, change): (String, Box<NewContent>) = match action {
        "write_file" => {
            let (path, content) = write::parts(arguments.clone()).ok()?;
            (path, Box::new(move |_| Some(content.clone())))
        }
        "edit_file" => {
            let (path, apply) = edit::parts(arguments.clone()).ok()?;
            (path, Box::new(apply))
        }
        _ => return None,
    };
    let opened = match workspace.open_file(&given) {
        Ok(opened) => opened,
        Err(error) if error.is_missing() => {
            let real = workspace.real_of(&given, &workspace.relative(&given).ok()?).ok()?;
            return Some(Preview { real, before: None, bytes: 0, diff: None });
        }
        Err(_) => return None,
    };
    let (real, stat) = (opened.real, opened.stat);
    let bytes = u64::try_from(stat.st_size).unwrap_or(0);
    if bytes > COMPARED_LIMIT {
        let seen = format!("{bytes} {} {} {}", stat.st_ino, stat.st_mtime, stat.st_mtime_nsec);
        let before = Some(Integrity::of(seen.as_bytes()));
        return Some(Preview { real, before, bytes, diff: None });
    }
    let mut content = Vec::new();
    File::from(opened.fd).take(COMPARED_LIMIT + 1).read_to_end(&mut content).ok()?;
    let before = Some(Integrity::of(&content));
    let bytes = content.len() as u64;
    // The question is shown to the agent, too, so it shows nothing that the program could not read.
    let is_readable = shown && workspace.allow(&given, &real, Operation::Read).is_ok();
    let old = String::from_utf8(content).ok().filter(|old| is_readable && old.len() <= DIFF_LIMIT);
    let diff = old.and_then(|old| {
        let new = change(&old)?;
        (new.len() <= DIFF_LIMIT).then(|| edit::hunks(&old, &new))
    });
    let diff = diff.map(|diff| keys_in_use().text(&diff).into_owned());
    Some(Preview { real, before, bytes, diff })
}
