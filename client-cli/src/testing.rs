//! What the tests in `tests/` use, which start the built `pml` as a supervisor or compare with other programs.

pub use crate::args::GraphFormat;
pub use crate::commands::plan::{Style, draw, text, to_json};
pub use crate::local_mcp::{LocalMcpError, LocalServers, ServerSpec, Timing};
pub use crate::processes::environment::Environment;
pub use crate::processes::supervise::Supervisor;
pub use crate::tools::{NativeError, NativeTools};
pub use crate::workspace::Workspace;
pub use crate::workspace::touched::{Granted, Touched};

/// Calls a tool of `pml` as after the user was asked about the call and allowed it.
///
/// # Errors
/// Returns why the call cannot be made, or its error.
pub async fn call_approved(
    tools: &NativeTools,
    tool: &protocol::ToolId,
    arguments: serde_json::Value,
    cancel: &tokio_util::sync::CancellationToken,
) -> Result<serde_json::Value, NativeError> {
    let touched = tools.check(tool, &arguments, &std::sync::Arc::default())?;
    tools.call(tool, arguments, Granted::of(&touched), cancel).await
}

/// The tools of `filesystem`, called without a permission.
pub mod filesystem {
    pub use crate::tools::filesystem::{call, check, descriptors};
}

/// Compiles a pattern of a policy; the result says whether it covers a path.
///
/// # Errors
/// Returns why it is invalid.
pub fn place_pattern(text: &str) -> Result<impl Fn(&std::path::Path) -> bool, String> {
    let pattern = crate::policy::glob::PlacePattern::new(text, false)?;
    Ok(move |path: &std::path::Path| pattern.covers(path))
}
