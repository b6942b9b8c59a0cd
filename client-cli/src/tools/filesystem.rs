//! `filesystem:*`: the reference MCP filesystem server's tools, contained.
//!
//! Names, schemas and texts are those of `@modelcontextprotocol/server-filesystem`
//! 2026.8.31, so that programs written for it work unchanged. Listings are
//! sorted, symbolic links never show anything outside the workspace, and
//! everything is bounded.

mod edit;
mod glob;
mod list;
mod media;
mod read;
mod write;

use std::path::Path;
use std::sync::LazyLock;

use protocol::{ErrorCode, ToolDescriptor};
use serde_json::{Value, json};

use super::{NativeError, RESULT_LIMIT, unknown};
use crate::workspace::Workspace;
use crate::workspace::protected::{Deed, Guard, Protected, Reach};

/// Tells a long directory walk that its run was cancelled.
pub(crate) type Cancelled<'a> = &'a dyn Fn() -> bool;

static DESCRIPTORS: LazyLock<Vec<ToolDescriptor>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("filesystem/tools.json"))
        .expect("the embedded descriptors are checked by a test")
});

/// Returns the descriptors of all `filesystem` tools.
pub fn descriptors() -> &'static [ToolDescriptor] {
    &DESCRIPTORS
}

/// Returns whether a `filesystem` tool changes what is there.
pub(crate) fn changes(action: &str) -> bool {
    matches!(action, "write_file" | "edit_file" | "create_directory" | "move_file")
}

/// Calls a `filesystem` tool and returns its MCP `CallToolResult`.
///
/// # Errors
/// Returns [`NativeError`] when the tool is unknown, its arguments are not valid, the path is outside, or protected
/// and not granted, or the system refuses.
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
        "list_directory" => list::list_directory(&workspace, arguments)?,
        "list_directory_with_sizes" => list::list_directory_with_sizes(&workspace, arguments)?,
        "directory_tree" => list::directory_tree(&workspace, arguments, cancelled)?,
        "move_file" => write::move_file(workspace, arguments)?,
        "search_files" => list::search_files(&workspace, arguments, cancelled)?,
        "get_file_info" => read::get_file_info(&workspace, arguments)?,
        "list_allowed_directories" => {
            format!("Allowed directories:\n{}", workspace.root().display())
        }
        _ => return Err(unknown(&format!("filesystem:{action}"))),
    };
    if text.len() > RESULT_LIMIT {
        return Err(too_large("the result", text.len() as u64, "request less at once"));
    }
    Ok(text_result(&text))
}

/// Checks whether a call could run: its arguments, and where its paths lead. Has no effect. Returns the places that
/// need a human's approval.
///
/// Something that an earlier call may still create, such as a missing folder, is no reason to refuse.
///
/// # Errors
/// Returns what [`call`] itself would fail with.
pub fn check(
    workspace: &Workspace,
    action: &str,
    arguments: Value,
) -> Result<Vec<Protected>, NativeError> {
    let mut look = Look { workspace, asked: Vec::new() };
    let tool = format!("filesystem:{action}");
    match action {
        "read_file" | "read_text_file" => read::look_at_text(&mut look, arguments)?,
        "read_media_file" => read::look_at_path(&mut look, &tool, arguments)?,
        "read_multiple_files" => read::look_at_many(&mut look, arguments)?,
        "write_file" => write::look_at_write(&mut look, arguments)?,
        "edit_file" => edit::look(&mut look, arguments)?,
        "create_directory" => write::look_at_create(&mut look, arguments)?,
        "move_file" => write::look_at_move(&mut look, arguments)?,
        "get_file_info" => read::look_at_facts(&mut look, &tool, arguments)?,
        "list_directory" | "list_directory_with_sizes" | "directory_tree" | "search_files" => {
            list::look(&mut look, action, arguments)?;
        }
        "list_allowed_directories" => {}
        _ => return Err(unknown(&tool)),
    }
    Ok(look.asked)
}

/// A check of a call before it is made.
struct Look<'a> {
    workspace: &'a Workspace,
    /// The places that need a human's approval.
    asked: Vec<Protected>,
}

impl Look<'_> {
    fn at(&mut self, given: &str, real: &Path, deed: Deed) -> Result<(), NativeError> {
        match self.workspace.protection(real, deed) {
            Some(place) if place.guard == Guard::Refused => Err(place.refused(given).into()),
            Some(place) => {
                if !self.asked.contains(&place) {
                    self.asked.push(place);
                }
                Ok(())
            }
            None => Ok(()),
        }
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
