//! `filesystem:*`: the tools of the reference MCP filesystem server, restricted to the workspace.
//!
//! Names, schemas and texts are those of `@modelcontextprotocol/server-filesystem` 2026.8.31, so that programs written
//! for it work unchanged. Unlike there, listings are sorted, symbolic links never show anything outside the workspace,
//! and all sizes are limited.

mod edit;
mod glob;
mod list;
mod media;
mod moved;
pub(crate) mod preview;
mod read;
pub(crate) mod restore;
mod write;

use std::path::Path;
use std::sync::LazyLock;

use protocol::{ErrorCode, ToolDescriptor};
use serde_json::{Value, json};

use super::{NativeError, RESULT_LIMIT, unknown};
use crate::policy::Operation;
use crate::workspace::reach::Reach;
use crate::workspace::touched::{Led, Touched};

/// Returns whether the run was cancelled, so that a long directory walk can stop.
pub(crate) type Cancelled<'a> = &'a dyn Fn() -> bool;

static DESCRIPTORS: LazyLock<Vec<ToolDescriptor>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("filesystem/tools.json"))
        .expect("the embedded descriptors are checked by a test")
});

/// Returns the descriptors of all `filesystem` tools.
pub fn descriptors() -> &'static [ToolDescriptor] {
    &DESCRIPTORS
}

/// Returns whether a `filesystem` tool changes files.
pub(crate) fn changes(action: &str) -> bool {
    matches!(action, "write_file" | "edit_file" | "create_directory" | "move_file")
}

/// Calls a `filesystem` tool and returns its MCP `CallToolResult`.
///
/// # Errors
/// Returns [`NativeError`] if the tool is unknown, its arguments are invalid, the path is outside the workspace, or
/// protected and not granted, or if the system reports an error.
pub fn call(
    workspace: Reach<'_>,
    action: &str,
    arguments: Value,
    cancelled: Cancelled<'_>,
) -> Result<Value, NativeError> {
    let text = match action {
        "read_file" | "read_text_file" => read::read_text_file(workspace, arguments)?,
        "read_media_file" => return media::read_media_file(workspace, arguments),
        "read_multiple_files" => read::read_multiple_files(workspace, arguments)?,
        "write_file" => write::write_file(workspace, arguments)?,
        "edit_file" => edit::edit_file(workspace, arguments)?,
        "create_directory" => write::create_directory(workspace, arguments)?,
        "list_directory" => list::list_directory(workspace, arguments)?,
        "list_directory_with_sizes" => list::list_directory_with_sizes(workspace, arguments)?,
        "directory_tree" => list::directory_tree(workspace, arguments, cancelled)?,
        "move_file" => write::move_file(workspace, arguments)?,
        "search_files" => list::search_files(workspace, arguments, cancelled)?,
        "get_file_info" => read::get_file_info(workspace, arguments)?,
        "list_allowed_directories" => {
            let mut text = "Allowed directories:".to_owned();
            for root in workspace.root_paths() {
                text.push('\n');
                text.push_str(&root.to_string_lossy());
            }
            text
        }
        _ => return Err(unknown(&format!("filesystem:{action}"))),
    };
    if text.len() > RESULT_LIMIT {
        return Err(too_large("the result", text.len() as u64, "request less at once"));
    }
    Ok(text_result(&text))
}

/// Checks that a call can run: its arguments and its paths. Has no side effect. Returns the places that it touches;
/// protected ones need the user's approval.
///
/// A missing file or folder is not an error here, because an earlier call may still create it.
///
/// # Errors
/// Returns the error that [`call`] would fail with.
pub fn check(workspace: Reach<'_>, action: &str, arguments: Value) -> Result<Touched, NativeError> {
    let mut check = Check { workspace, touched: Touched::default() };
    let tool = format!("filesystem:{action}");
    match action {
        "read_file" | "read_text_file" => read::check_text(&mut check, arguments)?,
        "read_media_file" => read::check_path(&mut check, &tool, arguments)?,
        "read_multiple_files" => read::check_multiple(&mut check, arguments)?,
        "write_file" => write::check_write(&mut check, arguments)?,
        "edit_file" => edit::check(&mut check, arguments)?,
        "create_directory" => write::check_create(&mut check, arguments)?,
        "move_file" => write::check_move(&mut check, arguments)?,
        "get_file_info" => read::check_metadata(&mut check, &tool, arguments)?,
        "list_directory" | "list_directory_with_sizes" | "directory_tree" | "search_files" => {
            list::check(&mut check, action, arguments)?;
        }
        "list_allowed_directories" => {}
        _ => return Err(unknown(&tool)),
    }
    Ok(check.touched)
}

/// The check of a call before it is made.
struct Check<'a> {
    /// The workspace, with the policy of the run.
    workspace: Reach<'a>,
    /// What it touches, so far.
    touched: Touched,
}

impl Check<'_> {
    /// Notes where a path leads.
    fn leads_to(&mut self, given: &str, real: &Path) -> Result<(), NativeError> {
        let by_link = self.workspace.relative(given)? != real;
        let led = Led { given: given.to_owned(), real: real.to_owned(), by_link };
        // An edit checks its path twice in a row.
        if self.touched.paths.last() != Some(&led) {
            self.touched.paths.push(led);
        }
        Ok(())
    }

    fn at(&mut self, given: &str, real: &Path, operation: Operation) -> Result<(), NativeError> {
        self.leads_to(given, real)?;
        let policy = self.workspace.policy().policy();
        if let Some(place) = self.workspace.guarded(policy, given, real, operation)?
            && !self.touched.protected.contains(&place)
        {
            self.touched.protected.push(place);
        }
        Ok(())
    }
}

fn text_result(text: &str) -> Value {
    json!({
        "content": [{ "type": "text", "text": text }],
        "structuredContent": { "content": text },
    })
}

fn too_large(what: &str, size: u64, hint: &str) -> NativeError {
    let message = format!("{what} is {size} bytes, more than the limit of {RESULT_LIMIT}; {hint}");
    NativeError::new(ErrorCode::ToolResultTooLarge, message)
}

fn invalid(tool: &str, reason: &str) -> NativeError {
    let message = format!("invalid arguments for `filesystem:{tool}`: {reason}");
    NativeError::new(ErrorCode::InvalidArguments, message)
}

fn failed(message: String) -> NativeError {
    NativeError::new(ErrorCode::ToolFailed, message)
}
